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

// configOf the role's options, over sarama's own defaults.
func configOf(spec *kit.Spec) (*sarama.Config, error) {
	options, err := spec.Options()
	if err != nil {
		return nil, err
	}
	config := sarama.NewConfig()
	if err = structOptions.Set(config, options); err != nil {
		return nil, err
	}
	if config.ClientID == sarama.NewConfig().ClientID {
		config.ClientID = spec.Name
	}
	return config, nil
}
