//go:build !debian

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
)

type kafkaGoMember struct {
	inbox
	reader *kafka.Reader
	stop   context.CancelFunc
	done   chan struct{}
}

var kafkaGoCodecs = map[string]kafka.Compression{
	"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
}

func init() { clients["kafka-go"] = kafkaGoOperations }

func kafkaGoOperations() map[string]operation {
	members := map[string]*kafkaGoMember{}
	return map[string]operation{
		"topic_create": kafkaGoAdmin(func(ctx context.Context, client *kafka.Client, r request) (any, error) {
			topic := kafka.TopicConfig{Topic: r.Topic, NumPartitions: int(r.Partitions), ReplicationFactor: 1}
			answer, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{topic}})
			if err != nil {
				return nil, err
			}
			return nil, answer.Errors[r.Topic]
		}),
		"topic_grow": kafkaGoAdmin(func(ctx context.Context, client *kafka.Client, r request) (any, error) {
			grown := kafka.TopicPartitionsConfig{Name: r.Topic, Count: r.Partitions}
			answer, err := client.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{
				Topics: []kafka.TopicPartitionsConfig{grown},
			})
			if err != nil {
				return nil, err
			}
			return nil, answer.Errors[r.Topic]
		}),
		"topic_partitions": kafkaGoAdmin(func(ctx context.Context, client *kafka.Client, r request) (any, error) {
			answer, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{r.Topic}})
			if err != nil {
				return nil, err
			}
			return len(answer.Topics[0].Partitions), answer.Topics[0].Error
		}),
		"topic_delete": kafkaGoAdmin(func(ctx context.Context, client *kafka.Client, r request) (any, error) {
			answer, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{r.Topic}})
			if err != nil {
				return nil, err
			}
			return nil, answer.Errors[r.Topic]
		}),
		"offset_at": kafkaGoAdmin(func(ctx context.Context, client *kafka.Client, r request) (any, error) {
			answer, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{
				r.Topic: {kafka.TimeOffsetOf(int(r.Partition), time.UnixMilli(r.Time))},
			}})
			if err != nil {
				return nil, err
			}
			for offset := range answer.Topics[r.Topic][0].Offsets {
				return offset, nil
			}
			return nil, fmt.Errorf("no offset for %d", r.Time)
		}),
		"produce": kafkaGoProduce,
		"read":    kafkaGoRead,
		"join": func(r request) (any, error) {
			reader := kafka.NewReader(kafka.ReaderConfig{
				Brokers: r.Servers, GroupID: r.Group, Topic: r.Topic, StartOffset: kafka.FirstOffset,
				HeartbeatInterval: 200 * time.Millisecond, MaxWait: 100 * time.Millisecond,
				SessionTimeout: 6 * time.Second, RebalanceTimeout: 6 * time.Second, JoinGroupBackoff: 100 * time.Millisecond,
			})
			ctx, stop := context.WithCancel(context.Background())
			member := &kafkaGoMember{reader: reader, stop: stop, done: make(chan struct{})}
			members[r.Member] = member
			go func() {
				defer close(member.done)
				for ctx.Err() == nil {
					// ReadMessage commits what it returns.
					if message, err := reader.ReadMessage(ctx); err == nil {
						member.put(string(message.Value))
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
			return nil, member.reader.Close()
		},
	}
}

func kafkaGoAdmin(do func(context.Context, *kafka.Client, request) (any, error)) operation {
	return func(r request) (any, error) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		transport := &kafka.Transport{}
		defer transport.CloseIdleConnections()
		return do(ctx, &kafka.Client{Addr: kafka.TCP(r.Servers...), Transport: transport}, r)
	}
}

func kafkaGoProduce(r request) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	// A writer chooses partitions by itself: one that always gives the same is how to name one.
	var balancer kafka.Balancer = &kafka.Hash{}
	if len(r.Records) > 0 && r.Records[0].Partition >= 0 {
		wanted := int(r.Records[0].Partition)
		balancer = kafka.BalancerFunc(func(kafka.Message, ...int) int { return wanted })
	}
	// The transport that all writers share remembers for seconds which topics there are.
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	writer := &kafka.Writer{
		Addr: kafka.TCP(r.Servers...), Transport: transport, Topic: r.Topic, Balancer: balancer, Compression: kafkaGoCodecs[r.Codec],
		BatchTimeout: 5 * time.Millisecond,
		RequiredAcks: map[string]kafka.RequiredAcks{
			"": kafka.RequireAll, "0": kafka.RequireNone, "1": kafka.RequireOne, "all": kafka.RequireAll,
		}[r.Acks],
	}
	defer writer.Close()
	messages := make([]kafka.Message, 0, len(r.Records))
	for _, one := range r.Records {
		message := kafka.Message{Key: one.key(), Value: []byte(one.Value)}
		if one.Timestamp > 0 {
			message.Time = time.UnixMilli(one.Timestamp)
		}
		for _, header := range one.Headers {
			message.Headers = append(message.Headers, kafka.Header{Key: header[0], Value: []byte(header[1])})
		}
		messages = append(messages, message)
	}
	return nil, writer.WriteMessages(ctx, messages...)
}

func kafkaGoRead(r request) (any, error) {
	config := kafka.ReaderConfig{
		Brokers: r.Servers, Topic: r.Topic, Partition: int(r.Partition), MaxWait: 100 * time.Millisecond, MaxBytes: 10 << 20,
	}
	if r.Committed {
		config.IsolationLevel = kafka.ReadCommitted
	}
	reader := kafka.NewReader(config)
	defer reader.Close()
	if err := reader.SetOffset(r.Offset); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	found := []record{}
	for len(found) < r.Count {
		one, err := reader.ReadMessage(ctx)
		if err != nil {
			return nil, err
		}
		headers := [][]string{}
		for _, header := range one.Headers {
			headers = append(headers, []string{header.Key, string(header.Value)})
		}
		found = append(found, record{
			int32(one.Partition), one.Offset, asKey(one.Key), string(one.Value), headers, one.Time.UnixMilli(),
		})
	}
	return found, nil
}
