package kit

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// TLSConfig of a client: paths of PEM files ("" = none), and whether a certificate need not name its host.
func TLSConfig(ca, certificate, key string, anyHost bool) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("no certificate in %s", ca)
		}
	}
	if certificate != "" {
		pair, err := tls.LoadX509KeyPair(certificate, key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	if anyHost { // Go skips the host name only together with the authority, which is checked here
		config.InsecureSkipVerify = true
		config.VerifyConnection = func(state tls.ConnectionState) error {
			chain := x509.VerifyOptions{Roots: config.RootCAs, Intermediates: x509.NewCertPool()}
			for _, each := range state.PeerCertificates[1:] {
				chain.Intermediates.AddCert(each)
			}
			_, err := state.PeerCertificates[0].Verify(chain)
			return err
		}
	}
	return config, nil
}
