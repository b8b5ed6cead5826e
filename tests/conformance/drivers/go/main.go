// The Go clients of Kafka as servants of a test: `drivers NAME` reads one JSON request per line, does what it asks with
// the client NAME (sarama, franz-go, kafka-go), and writes one JSON line for each: {"answer": …} or {"error": "…"}.
// What can be asked stands in tests/conformance/drivers/__init__.py. Built with the tag `debian`, there is only sarama, in
// the old version that Debian packages, without what it lacks (sarama_newer.go).
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

// As long as a test waits; what works takes a fraction of it.
const patience = 60 * time.Second

type request struct {
	Op         string
	Servers    []string
	Topic      string
	Partitions int32
	Partition  int32
	Acks       string
	Codec      string
	Records    []record
	Offset     int64
	Count      int
	Committed  bool
	Time       int64
	Member     string
	Group      string
	Protocol   string
	ID         string
	Values     []string
	Commit     bool
	Target     string
	Verdict    string
}

type record struct {
	Partition int32      `json:"partition"`
	Offset    int64      `json:"offset"`
	Key       *string    `json:"key"`
	Value     string     `json:"value"`
	Headers   [][]string `json:"headers"`
	Timestamp int64      `json:"timestamp"`
}

func (r record) key() []byte {
	if r.Key == nil {
		return nil
	}
	return []byte(*r.Key)
}

func asKey(key []byte) *string {
	if key == nil {
		return nil
	}
	text := string(key)
	return &text
}

// What a member of a group has read since it was last asked.
type inbox struct {
	mu     sync.Mutex
	values []string
}

func (i *inbox) put(values ...string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.values = append(i.values, values...)
}

// Waits a little for the first value.
func (i *inbox) take() []string {
	for deadline := time.Now().Add(100 * time.Millisecond); ; time.Sleep(5 * time.Millisecond) {
		i.mu.Lock()
		taken := i.values
		i.values = nil
		i.mu.Unlock()
		if len(taken) > 0 || time.Now().After(deadline) {
			return append([]string{}, taken...)
		}
	}
}

type operation func(r request) (any, error)

// Every client enters itself.
var clients = map[string]func() map[string]operation{}

func main() {
	operations := clients[os.Args[1]]()
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var r request
		err := json.Unmarshal(lines.Bytes(), &r)
		var answer any
		if err == nil {
			if do, ok := operations[r.Op]; ok {
				answer, err = do(r)
			} else {
				err = fmt.Errorf("%s does not know %q", os.Args[1], r.Op)
			}
		}
		if err != nil {
			answers.Encode(map[string]string{"error": err.Error()})
		} else {
			answers.Encode(map[string]any{"answer": answer})
		}
	}
}
