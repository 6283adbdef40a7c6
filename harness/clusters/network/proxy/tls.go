package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
)

// A link is one side of a relayed connection, with TLS or without.
type link interface {
	net.Conn
	CloseWrite() error
}

// resetLink ends a connection with RST; TLS says nothing of it.
func resetLink(conn link) {
	plain, is := conn.(*net.TCPConn)
	if !is {
		plain = conn.(*tls.Conn).NetConn().(*net.TCPConn)
	}
	reset(plain)
}

// closeWrite ends one direction in good order. The end of TLS alone does not end it for every client.
func closeWrite(conn link) {
	conn.CloseWrite()
	if secured, is := conn.(*tls.Conn); is {
		secured.NetConn().(*net.TCPConn).CloseWrite()
	}
}

func dialled(conn net.Conn, err error) (link, error) {
	if err != nil {
		return nil, err
	}
	return conn.(link), nil
}

// tlsFiles name what a relay needs to end and to begin TLS: the certificate and the key of its node, and the authority
// that issued the certificates of all nodes. All are PEM.
type tlsFiles struct{ Certificate, Key, CA string }

// wrap makes a listener that ends TLS as the node does, and a way to the node that begins it again.
func (t *tlsFiles) wrap(listener net.Listener, upstream string) (net.Listener, func() (link, error), error) {
	own, err := tls.LoadX509KeyPair(t.Certificate, t.Key)
	if err != nil {
		listener.Close()
		return nil, nil, err
	}
	authority, err := os.ReadFile(t.CA)
	roots := x509.NewCertPool()
	if err == nil && !roots.AppendCertsFromPEM(authority) {
		err = errors.New("no certificate in " + t.CA)
	}
	if err != nil {
		listener.Close()
		return nil, nil, err
	}
	dial := func() (link, error) {
		return dialled(tls.Dial("tcp", upstream, &tls.Config{RootCAs: roots}))
	}
	return tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{own}}), dial, nil
}
