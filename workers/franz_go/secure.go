package main

import (
	"brokerstorm/kit"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const securityHint = "check tls and auth of the connection file"

// secure takes the options that franz-go wants as objects out of the others, and makes them.
func secure(options map[string]string) ([]kgo.Opt, error) {
	take := func(name string) string {
		text := options[name]
		delete(options, name)
		return text
	}
	var made []kgo.Opt
	ca, certificate, key := take("TLS.CA"), take("TLS.Certificate"), take("TLS.Key")
	anyHost := take("TLS.AnyHost") == "true"
	if take("TLS.Enable") == "true" {
		config, err := kit.TLSConfig(ca, certificate, key, anyHost)
		if err != nil {
			return nil, kit.Failuref(securityHint, "franz-go: TLS: %v", err)
		}
		made = append(made, kgo.DialTLSConfig(config))
	}
	user, secret := take("SASL.User"), take("SASL.Secret")
	var mechanism sasl.Mechanism
	switch named := take("SASL.Mechanism"); named {
	case "":
		return made, nil
	case "PLAIN":
		mechanism = plain.Auth{User: user, Pass: secret}.AsMechanism()
	case "SCRAM-SHA-256":
		mechanism = scram.Auth{User: user, Pass: secret}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		mechanism = scram.Auth{User: user, Pass: secret}.AsSha512Mechanism()
	case "OAUTHBEARER":
		mechanism = oauth.Auth{Token: secret}.AsMechanism()
	default:
		return nil, kit.Failuref(securityHint, "franz-go: SASL mechanism %q", named)
	}
	return append(made, kgo.SASL(mechanism)), nil
}
