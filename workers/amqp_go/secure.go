package main

import (
	"brokerstorm/kit"
	amqp "github.com/rabbitmq/amqp091-go"
)

// secure takes the options that the client wants as objects out of the others, and makes them.
func secure(options map[string]string, config *amqp.Config) (scheme string, user *amqp.PlainAuth, err error) {
	take := func(name string) string {
		text := options[name]
		delete(options, name)
		return text
	}
	user = &amqp.PlainAuth{Username: guest, Password: guest}
	if name, secret := take("User"), take("Secret"); name != "" {
		user.Username, user.Password = name, secret
	}
	ca, certificate, key := take("TLS.CA"), take("TLS.Certificate"), take("TLS.Key")
	anyHost := take("TLS.AnyHost") == "true"
	if take("TLS.Enable") != "true" {
		return "amqp", user, nil
	}
	if config.TLSClientConfig, err = kit.TLSConfig(ca, certificate, key, anyHost); err != nil {
		return "", nil, kit.Failuref("check tls and auth of the connection file", "amqp091-go: TLS: %v", err)
	}
	return "amqps", user, nil
}
