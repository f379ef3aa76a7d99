package natsdriver

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/natstest"
	"github.com/dlock-go/dlock/internal/testenv"
)

// ways returns dlock, and the locks that pages about NATS suggest.
func ways(b *testing.B) []testenv.Way {
	server := natstest.Start(b)
	bucket := func() jetstream.KeyValue {
		nc, err := nats.Connect("nats://" + server.Addr())
		require.NoError(b, err)
		b.Cleanup(nc.Close)
		js, err := jetstream.New(nc)
		require.NoError(b, err)
		kv, err := js.CreateOrUpdateKeyValue(context.Background(), jetstream.KeyValueConfig{Bucket: "locks", TTL: time.Minute})
		require.NoError(b, err)
		return kv
	}
	with := func(wait func(ctx context.Context, kv jetstream.KeyValue) error) func() func() error {
		return func() func() error {
			kv, ctx := bucket(), context.Background()
			return func() error {
				for {
					revision, err := kv.Create(ctx, "lock", []byte("me"))
					if err == nil {
						return kv.Delete(ctx, "lock", jetstream.LastRevision(revision))
					}
					if !errors.Is(err, jetstream.ErrKeyExists) {
						return err
					}
					if err := wait(ctx, kv); err != nil {
						return err
					}
				}
			}
		}
	}
	poll := func(context.Context, jetstream.KeyValue) error {
		time.Sleep(5 * time.Millisecond)
		return nil
	}
	watch := func(ctx context.Context, kv jetstream.KeyValue) error {
		w, err := kv.Watch(ctx, "lock")
		if err != nil {
			return err
		}
		held := false
		for e := range w.Updates() { // nil follows the entries that existed before
			if e != nil {
				held = e.Operation() == jetstream.KeyValuePut
			}
			if !held {
				break
			}
		}
		return w.Stop()
	}
	return []testenv.Way{testenv.Dlock(b, "nats", "nats://"+server.Addr()+"/bench?empty_is_new=true&session_timeout=60s"),
		{Name: "Create+poll", Contender: with(poll)}, {Name: "Create+watch", Contender: with(watch)}}
}

func BenchmarkFree(b *testing.B) { testenv.Free(b, ways(b)) }

func BenchmarkContended(b *testing.B) { testenv.Contended(b, ways(b)) }

// BenchmarkCrowd lets many contenders take one lock once each.
func BenchmarkCrowd(b *testing.B) {
	for _, n := range []int{8, 200} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			for _, w := range ways(b) {
				var contenders []func() error
				for range n {
					contenders = append(contenders, w.Contender())
				}
				require.NoError(b, contenders[0]())
				began := time.Now()
				for range b.N {
					var all sync.WaitGroup
					for _, once := range contenders {
						all.Go(func() {
							if err := once(); err != nil {
								b.Log(err) // not fatal, because dlock retries a failed unlock
							}
						})
					}
					all.Wait()
				}
				b.ReportMetric(float64(n*b.N)/time.Since(began).Seconds(), "locks/s:"+w.Name)
			}
		})
	}
}
