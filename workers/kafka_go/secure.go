package main

import (
	"crypto/tls"

	"brokerstorm/kit"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

const securityHint = "check tls and auth of the connection file"

// secure takes the options that kafka-go wants as objects out of the others, and makes them; nil = none.
func secure(options map[string]string) (*tls.Config, sasl.Mechanism, error) {
	take := func(name string) string {
		text := options[name]
		delete(options, name)
		return text
	}
	var config *tls.Config
	ca, certificate, key := take("TLS.CA"), take("TLS.Certificate"), take("TLS.Key")
	anyHost := take("TLS.AnyHost") == "true"
	if take("TLS.Enable") == "true" {
		made, err := kit.TLSConfig(ca, certificate, key, anyHost)
		if err != nil {
			return nil, nil, kit.Failuref(securityHint, "kafka-go: TLS: %v", err)
		}
		config = made
	}
	user, secret := take("SASL.User"), take("SASL.Secret")
	algorithm := scram.SHA256
	switch named := take("SASL.Mechanism"); named {
	case "":
		return config, nil, nil
	case "PLAIN":
		return config, plain.Mechanism{Username: user, Password: secret}, nil
	case "SCRAM-SHA-256":
	case "SCRAM-SHA-512":
		algorithm = scram.SHA512
	default:
		return nil, nil, kit.Failuref(securityHint, "kafka-go: SASL mechanism %q", named)
	}
	mechanism, err := scram.Mechanism(algorithm, user, secret)
	if err != nil {
		return nil, nil, kit.Failuref(securityHint, "kafka-go: SCRAM: %v", err)
	}
	return config, mechanism, nil
}
