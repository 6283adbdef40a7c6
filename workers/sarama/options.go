package main

import (
	"brokerstorm/kit"
	"github.com/IBM/sarama"
)

var structOptions = kit.StructOptions{
	Library: "sarama",
	Hint:    "options are paths in sarama.Config: Producer.Retry.Max, Net.ReadTimeout, Version ...",
	Words: map[string]map[string]int64{
		"Consumer.Offsets.Initial": {"oldest": sarama.OffsetOldest, "newest": sarama.OffsetNewest},

		"RequiredAcks":   {"all": -1, "waitforall": -1, "local": 1, "waitforlocal": 1, "none": 0, "noresponse": 0},
		"IsolationLevel": {"readuncommitted": 0, "readcommitted": 1},
	},
	Parse: func(field any, text string) (bool, error) {
		target, known := field.(*sarama.KafkaVersion)
		if !known {
			return false, nil
		}
		version, err := sarama.ParseKafkaVersion(text)
		*target = version
		return true, err
	},
}

// configOf the role's options, over sarama's own defaults. Under --check-options sarama's own checks come at once.
func configOf(session *kit.Session) (*sarama.Config, error) {
	spec := session.Spec
	options, err := spec.Options()
	if err != nil {
		return nil, err
	}
	config := sarama.NewConfig()
	if err = secure(config, options); err != nil {
		return nil, err
	}
	if own := spec.Producer; own != nil && own.Transactions != nil {
		options[transactionID] = own.Transactions.ID // those of the goroutines follow
	}
	if err = structOptions.Set(config, options); err != nil {
		return nil, err
	}
	if config.ClientID == sarama.NewConfig().ClientID {
		config.ClientID = spec.Name
	}
	if taken := session.OptionsTaken(); taken != nil {
		if err = config.Validate(); err != nil {
			return nil, refused("refused its options", err)
		}
		return nil, taken
	}
	return config, nil
}
