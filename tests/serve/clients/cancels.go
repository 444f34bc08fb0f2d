// Calls of ModelInfer on one connection, many of which are taken back: the others are to be answered.
//
// Usage: cancels ADDRESS SECONDS CALLERS < a ModelInferRequest whose last 8 bytes are its tensor
//
// A caller takes every second call back, after 0 to 1.5 ms, by a cancel or by the call's deadline. As
// JSON on the standard output: how many calls were answered and how many were taken back, and how
// often the others failed, by status and text. A call without an answer after 20 s counts as failed.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/rand"
	"os"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
)

const method = "/inference.GRPCInferenceService/ModelInfer"

// raw sends and takes messages as bytes.
type raw struct{}

func (raw) Marshal(v interface{}) ([]byte, error) { return *v.(*[]byte), nil }

func (raw) Unmarshal(data []byte, v interface{}) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}

func (raw) Name() string { return "proto" }

type found struct {
	Answered  int            `json:"answered"`
	TakenBack int            `json:"taken_back"`
	Failed    map[string]int `json:"failed"`
}

func (f *found) call(connection *grpc.ClientConn, request []byte, number uint64, takeBack bool) {
	sent := append([]byte(nil), request...)
	value := sent[len(sent)-8:]
	binary.LittleEndian.PutUint64(value, number)
	limit := 20 * time.Second
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if takeBack {
		patience := time.Duration(rand.Intn(1500)) * time.Microsecond
		if number%4 < 2 {
			limit = patience
		} else {
			time.AfterFunc(patience, cancel)
		}
	}
	ctx, end := context.WithTimeout(ctx, limit)
	defer end()
	var answer []byte
	err := connection.Invoke(ctx, method, &sent, &answer, grpc.ForceCodec(raw{}))
	switch {
	case takeBack:
		f.TakenBack++
	case err != nil:
		f.Failed[err.Error()]++
	case !bytes.Contains(answer, value):
		f.Failed["the answer is another's"]++
	default:
		f.Answered++
	}
}

func run(address string, seconds float64, callers int, request []byte) (*found, error) {
	connection, err := grpc.Dial(address, grpc.WithInsecure(), grpc.WithBlock())
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	until := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	each := make([]found, callers)
	var all sync.WaitGroup
	for caller := range each {
		all.Add(1)
		go func(caller int) {
			defer all.Done()
			own := &each[caller]
			own.Failed = map[string]int{}
			for number := uint64(caller) << 32; time.Now().Before(until); number++ {
				own.call(connection, request, number, number%2 == 1)
			}
		}(caller)
	}
	all.Wait()
	sum := &found{Failed: map[string]int{}}
	for _, own := range each {
		sum.Answered += own.Answered
		sum.TakenBack += own.TakenBack
		for words, count := range own.Failed {
			sum.Failed[words] += count
		}
	}
	return sum, nil
}

func main() {
	seconds, err := strconv.ParseFloat(os.Args[2], 64)
	callers, callersErr := strconv.Atoi(os.Args[3])
	request, readErr := io.ReadAll(os.Stdin)
	for _, failure := range []error{err, callersErr, readErr} {
		if failure != nil {
			fmt.Fprintln(os.Stderr, failure)
			os.Exit(2)
		}
	}
	sum, err := run(os.Args[1], seconds, callers, request)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(sum); err != nil {
		os.Exit(1)
	}
}
