package main

import (
	"crypto/sha256"
	"crypto/sha512"

	"brokerstorm/kit"
	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

const hint = "check tls and auth of the connection file"

// secure takes the options that sarama wants as objects out of the others, and sets them.
func secure(config *sarama.Config, options map[string]string) error {
	take := func(name string) string {
		text := options[name]
		delete(options, name)
		return text
	}
	ca, certificate, key := take("Net.TLS.CA"), take("Net.TLS.Certificate"), take("Net.TLS.Key")
	anyHost := take("Net.TLS.AnyHost") == "true"
	if options["Net.TLS.Enable"] == "true" {
		made, err := kit.TLSConfig(ca, certificate, key, anyHost)
		if err != nil {
			return kit.Failuref(hint, "sarama: TLS: %v", err)
		}
		config.Net.TLS.Config = made
	}
	if token := take("Net.SASL.Token"); token != "" {
		config.Net.SASL.TokenProvider = staticToken(token)
	}
	switch options["Net.SASL.Mechanism"] {
	case sarama.SASLTypeSCRAMSHA256:
		config.Net.SASL.SCRAMClientGeneratorFunc = scramOf(sha256.New)
	case sarama.SASLTypeSCRAMSHA512:
		config.Net.SASL.SCRAMClientGeneratorFunc = scramOf(sha512.New)
	}
	return nil
}

// staticToken is the same token whenever sarama asks.
type staticToken string

func (t staticToken) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(t)}, nil
}

// scramClient is xdg-go's SCRAM in the form that sarama asks for.
type scramClient struct {
	hash         scram.HashGeneratorFcn
	conversation *scram.ClientConversation
}

func scramOf(hash scram.HashGeneratorFcn) func() sarama.SCRAMClient {
	return func() sarama.SCRAMClient { return &scramClient{hash: hash} }
}

func (c *scramClient) Begin(user, password, authzID string) error {
	client, err := c.hash.NewClient(user, password, authzID)
	if err != nil {
		return err
	}
	c.conversation = client.NewConversation()
	return nil
}

func (c *scramClient) Step(challenge string) (string, error) { return c.conversation.Step(challenge) }

func (c *scramClient) Done() bool { return c.conversation.Done() }
