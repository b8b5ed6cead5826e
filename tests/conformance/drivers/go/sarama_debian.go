//go:build debian

package main

import (
	"time"

	"github.com/IBM/sarama"
)

func init() {
	// Without a retention it commits with version 1 of OffsetCommit, which Kafka 4 has given up.
	saramaTune = func(config *sarama.Config) { config.Consumer.Offsets.Retention = time.Hour }
}
