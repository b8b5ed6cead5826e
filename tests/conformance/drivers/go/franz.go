//go:build !debian

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type franzMember struct {
	inbox
	client *kgo.Client
	shares bool
	stop   context.CancelFunc
	done   chan struct{}
}

var franzCodecs = map[string]kgo.CompressionCodec{
	"": kgo.NoCompression(), "none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func init() { clients["franz-go"] = franzOperations }

func franzOperations() map[string]operation {
	members := map[string]*franzMember{}
	return map[string]operation{
		"topic_create": franzAdmin(func(ctx context.Context, admin *kadm.Client, r request) (any, error) {
			_, err := admin.CreateTopic(ctx, r.Partitions, 1, nil, r.Topic)
			return nil, err
		}),
		"topic_grow": franzAdmin(func(ctx context.Context, admin *kadm.Client, r request) (any, error) {
			answers, err := admin.UpdatePartitions(ctx, int(r.Partitions), r.Topic)
			return nil, errors.Join(err, answers.Error())
		}),
		"topic_partitions": franzAdmin(func(ctx context.Context, admin *kadm.Client, r request) (any, error) {
			topics, err := admin.ListTopics(ctx, r.Topic)
			return len(topics[r.Topic].Partitions), errors.Join(err, topics.Error())
		}),
		"topic_delete": franzAdmin(func(ctx context.Context, admin *kadm.Client, r request) (any, error) {
			_, err := admin.DeleteTopic(ctx, r.Topic)
			return nil, err
		}),
		"offset_at": franzAdmin(func(ctx context.Context, admin *kadm.Client, r request) (any, error) {
			offsets, err := admin.ListOffsetsAfterMilli(ctx, r.Time, r.Topic)
			found, _ := offsets.Lookup(r.Topic, r.Partition)
			return found.Offset, errors.Join(err, found.Err)
		}),
		"produce": franzProduce,
		"read":    franzRead,
		"transact": func(r request) (any, error) {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			client, err := kgo.NewClient(kgo.SeedBrokers(r.Servers...), kgo.TransactionalID(r.ID))
			if err != nil {
				return nil, err
			}
			defer client.Close()
			if err := client.BeginTransaction(); err != nil {
				return nil, err
			}
			for _, value := range r.Values {
				record := &kgo.Record{Topic: r.Topic, Value: []byte(value)}
				if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
					return nil, err
				}
			}
			return nil, client.EndTransaction(ctx, kgo.TransactionEndTry(r.Commit))
		},
		"pipe": franzPipe,
		"join": func(r request) (any, error) {
			options := []kgo.Opt{
				kgo.SeedBrokers(r.Servers...), kgo.ConsumerGroup(r.Group), kgo.ConsumeTopics(r.Topic),
				kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(200 * time.Millisecond),
			}
			if r.Protocol == "consumer" {
				options = append(options, kgo.ServerSideBalancer())
			}
			member, err := franzJoin(options, func(*kgo.Record) {})
			members[r.Member] = member
			return nil, err
		},
		"share_join": func(r request) (any, error) {
			verdict := map[string]kgo.AckStatus{
				"accept": kgo.AckAccept, "release": kgo.AckRelease, "reject": kgo.AckReject,
			}[r.Verdict]
			options := []kgo.Opt{kgo.SeedBrokers(r.Servers...), kgo.ShareGroup(r.Group), kgo.ConsumeTopics(r.Topic)}
			member, err := franzJoin(options, func(record *kgo.Record) { record.Ack(verdict) })
			if err != nil {
				return nil, err
			}
			member.shares = true
			members[r.Member] = member
			return nil, nil
		},
		"poll": func(r request) (any, error) {
			member, ok := members[r.Member]
			if !ok {
				return nil, fmt.Errorf("no member %s", r.Member)
			}
			return member.take(), nil
		},
		"leave": func(r request) (any, error) {
			member := members[r.Member]
			delete(members, r.Member)
			member.stop()
			<-member.done
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			defer member.client.Close()
			if member.shares {
				return nil, member.client.FlushAcks(ctx)
			}
			return nil, member.client.CommitUncommittedOffsets(ctx)
		},
	}
}

func franzAdmin(do func(context.Context, *kadm.Client, request) (any, error)) operation {
	return func(r request) (any, error) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		client, err := kgo.NewClient(kgo.SeedBrokers(r.Servers...))
		if err != nil {
			return nil, err
		}
		defer client.Close()
		return do(ctx, kadm.NewClient(client), r)
	}
}

// The member polls until it is stopped; `handle` is called for each record before the test can see it.
func franzJoin(options []kgo.Opt, handle func(*kgo.Record)) (*franzMember, error) {
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	member := &franzMember{client: client, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(member.done)
		for ctx.Err() == nil {
			client.PollFetches(ctx).EachRecord(func(record *kgo.Record) {
				handle(record)
				text := string(record.Value)
				if count := record.DeliveryCount(); count > 0 {
					text = fmt.Sprintf("%d %s", count, text)
				}
				member.put(text)
			})
		}
	}()
	return member, nil
}

func franzProduce(r request) (any, error) {
	options := []kgo.Opt{kgo.SeedBrokers(r.Servers...), kgo.ProducerBatchCompression(franzCodecs[r.Codec])}
	switch r.Acks {
	case "0":
		options = append(options, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	case "1":
		options = append(options, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	}
	if len(r.Records) > 0 && r.Records[0].Partition >= 0 {
		options = append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records := make([]*kgo.Record, 0, len(r.Records))
	for _, one := range r.Records {
		record := &kgo.Record{Topic: r.Topic, Partition: one.Partition, Key: one.key(), Value: []byte(one.Value)}
		if one.Timestamp > 0 {
			record.Timestamp = time.UnixMilli(one.Timestamp)
		}
		for _, header := range one.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: header[0], Value: []byte(header[1])})
		}
		records = append(records, record)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return nil, client.ProduceSync(ctx, records...).FirstErr()
}

func franzRead(r request) (any, error) {
	start := map[string]map[int32]kgo.Offset{r.Topic: {r.Partition: kgo.NewOffset().At(r.Offset)}}
	options := []kgo.Opt{kgo.SeedBrokers(r.Servers...), kgo.ConsumePartitions(start)}
	if r.Committed {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	found := []record{}
	for len(found) < r.Count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(one *kgo.Record) {
			headers := [][]string{}
			for _, header := range one.Headers {
				headers = append(headers, []string{header.Key, string(header.Value)})
			}
			found = append(found, record{
				one.Partition, one.Offset, asKey(one.Key), string(one.Value), headers, one.Timestamp.UnixMilli(),
			})
		})
	}
	return found, nil
}

func franzPipe(r request) (any, error) {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(r.Servers...), kgo.TransactionalID(r.ID), kgo.ConsumerGroup(r.Group), kgo.ConsumeTopics(r.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
	)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for count := 0; count < r.Count; {
		fetches := session.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		if err := session.Begin(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(one *kgo.Record) {
			session.Produce(ctx, &kgo.Record{Topic: r.Target, Value: append(one.Value, '!')}, nil)
		})
		committed, err := session.End(ctx, kgo.TryCommit)
		if err != nil {
			return nil, err
		}
		if committed {
			count += fetches.NumRecords()
		}
	}
	return nil, nil
}
