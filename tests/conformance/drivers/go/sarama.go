package main

import (
	"context"
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

var saramaCodecs = map[string]sarama.CompressionCodec{
	"": sarama.CompressionNone, "none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

// What sarama_newer.go adds.
var (
	saramaTune = func(*sarama.Config) {}
	saramaMore = map[string]operation{}
)

func init() { clients["sarama"] = saramaOperations }

func saramaConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.Return.Successes = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	saramaTune(config)
	return config
}

func saramaOperations() map[string]operation {
	members := map[string]*saramaMember{}
	operations := map[string]operation{
		"topic_create": saramaAdmin(func(admin sarama.ClusterAdmin, r request) (any, error) {
			return nil, admin.CreateTopic(r.Topic, &sarama.TopicDetail{NumPartitions: r.Partitions, ReplicationFactor: 1}, false)
		}),
		"topic_grow": saramaAdmin(func(admin sarama.ClusterAdmin, r request) (any, error) {
			return nil, admin.CreatePartitions(r.Topic, r.Partitions, nil, false)
		}),
		"topic_partitions": saramaAdmin(func(admin sarama.ClusterAdmin, r request) (any, error) {
			topics, err := admin.DescribeTopics([]string{r.Topic})
			if err != nil {
				return nil, err
			}
			if topics[0].Err != sarama.ErrNoError {
				return nil, topics[0].Err
			}
			return len(topics[0].Partitions), nil
		}),
		"topic_delete": saramaAdmin(func(admin sarama.ClusterAdmin, r request) (any, error) {
			return nil, admin.DeleteTopic(r.Topic)
		}),
		"offset_at": func(r request) (any, error) {
			client, err := sarama.NewClient(r.Servers, saramaConfig())
			if err != nil {
				return nil, err
			}
			defer client.Close()
			return client.GetOffset(r.Topic, r.Partition, r.Time)
		},
		"produce": saramaProduce,
		"read":    saramaRead,
		"join": func(r request) (any, error) {
			group, err := sarama.NewConsumerGroup(r.Servers, r.Group, saramaConfig())
			if err != nil {
				return nil, err
			}
			ctx, stop := context.WithCancel(context.Background())
			member := &saramaMember{group: group, stop: stop, done: make(chan struct{})}
			members[r.Member] = member
			go func() {
				defer close(member.done)
				for ctx.Err() == nil {
					if err := group.Consume(ctx, []string{r.Topic}, member); err != nil {
						// A broker that is away comes back, or the test fails.
						time.Sleep(100 * time.Millisecond)
					}
				}
			}()
			return nil, nil
		},
		"poll": func(r request) (any, error) { return members[r.Member].take(), nil },
		"leave": func(r request) (any, error) {
			member := members[r.Member]
			delete(members, r.Member)
			member.stop()
			<-member.done
			return nil, member.group.Close()
		},
	}
	for name, do := range saramaMore {
		operations[name] = do
	}
	return operations
}

func saramaAdmin(do func(sarama.ClusterAdmin, request) (any, error)) operation {
	return func(r request) (any, error) {
		admin, err := sarama.NewClusterAdmin(r.Servers, saramaConfig())
		if err != nil {
			return nil, err
		}
		defer admin.Close()
		return do(admin, r)
	}
}

// A sarama.ConsumerGroupHandler that marks what it has put into the inbox.
type saramaMember struct {
	inbox
	group sarama.ConsumerGroup
	stop  context.CancelFunc
	done  chan struct{}
}

func (*saramaMember) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*saramaMember) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *saramaMember) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		m.put(string(message.Value))
		session.MarkMessage(message, "")
	}
	return nil
}

func saramaProduce(r request) (any, error) {
	config := saramaConfig()
	config.Producer.Compression = saramaCodecs[r.Codec]
	config.Producer.RequiredAcks = map[string]sarama.RequiredAcks{
		"": sarama.WaitForAll, "0": sarama.NoResponse, "1": sarama.WaitForLocal, "all": sarama.WaitForAll,
	}[r.Acks]
	if len(r.Records) > 0 && r.Records[0].Partition >= 0 {
		config.Producer.Partitioner = sarama.NewManualPartitioner
	}
	producer, err := sarama.NewSyncProducer(r.Servers, config)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	messages := make([]*sarama.ProducerMessage, 0, len(r.Records))
	for _, one := range r.Records {
		message := &sarama.ProducerMessage{Topic: r.Topic, Partition: one.Partition, Value: sarama.StringEncoder(one.Value)}
		if one.Key != nil {
			message.Key = sarama.StringEncoder(*one.Key)
		}
		if one.Timestamp > 0 {
			message.Timestamp = time.UnixMilli(one.Timestamp)
		}
		for _, header := range one.Headers {
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(header[0]), Value: []byte(header[1])})
		}
		messages = append(messages, message)
	}
	return nil, producer.SendMessages(messages)
}

func saramaRead(r request) (any, error) {
	config := saramaConfig()
	if r.Committed {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	consumer, err := sarama.NewConsumer(r.Servers, config)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(r.Topic, r.Partition, r.Offset)
	if err != nil {
		return nil, err
	}
	defer partition.Close()
	found, late := []record{}, time.After(patience)
	for len(found) < r.Count {
		select {
		case one := <-partition.Messages():
			headers := [][]string{}
			for _, header := range one.Headers {
				headers = append(headers, []string{string(header.Key), string(header.Value)})
			}
			found = append(found, record{
				one.Partition, one.Offset, asKey(one.Key), string(one.Value), headers, one.Timestamp.UnixMilli(),
			})
		case <-late:
			return nil, fmt.Errorf("only %d of %d records came", len(found), r.Count)
		}
	}
	return found, nil
}
