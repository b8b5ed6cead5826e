//go:build !debian

// What sarama has gained since Debian's version: transactions, and a setting of its own for commits.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

func init() {
	saramaTune = func(config *sarama.Config) { config.Consumer.Offsets.AutoCommit.Interval = 200 * time.Millisecond }
	saramaMore["transact"] = saramaTransact
	saramaMore["pipe"] = saramaPipe
}

func saramaTransactional(r request) (sarama.SyncProducer, error) {
	config := saramaConfig()
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Transaction.ID = r.ID
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer(r.Servers, config)
	if err != nil {
		return nil, err
	}
	return producer, producer.BeginTxn()
}

func saramaTransact(r request) (any, error) {
	producer, err := saramaTransactional(r)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	for _, value := range r.Values {
		if _, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: r.Topic, Value: sarama.StringEncoder(value)}); err != nil {
			return nil, err
		}
	}
	if r.Commit {
		return nil, producer.CommitTxn()
	}
	return nil, producer.AbortTxn()
}

// Reads, writes and adds the offsets of what it read to one transaction; ends its session after that.
type saramaPiper struct {
	request  request
	producer sarama.SyncProducer
	stop     context.CancelFunc
	count    int
	err      error
}

func (*saramaPiper) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*saramaPiper) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (p *saramaPiper) ConsumeClaim(_ sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		output := &sarama.ProducerMessage{Topic: p.request.Target, Value: sarama.StringEncoder(string(message.Value) + "!")}
		if _, _, p.err = p.producer.SendMessage(output); p.err == nil {
			p.err = p.producer.AddMessageToTxn(message, p.request.Group, nil)
		}
		if p.count++; p.err == nil && p.count == p.request.Count {
			p.err = p.producer.CommitTxn()
		}
		if p.err != nil || p.count == p.request.Count {
			p.stop()
			return p.err
		}
	}
	return nil
}

func saramaPipe(r request) (any, error) {
	producer, err := saramaTransactional(r)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	config := saramaConfig()
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Offsets.AutoCommit.Enable = false
	group, err := sarama.NewConsumerGroup(r.Servers, r.Group, config)
	if err != nil {
		return nil, err
	}
	defer group.Close()
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	piper := &saramaPiper{request: r, producer: producer, stop: stop}
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{r.Topic}, piper); err != nil {
			return nil, err
		}
	}
	if piper.err == nil && piper.count < r.Count {
		return nil, fmt.Errorf("only %d of %d records came", piper.count, r.Count)
	}
	return nil, piper.err
}
