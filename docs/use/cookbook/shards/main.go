// The program shards divides the shards of a work queue among its machines.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/memdriver" // for real machines: zkdriver
	"github.com/dlock-go/dlock/shards"
)

// count is the number of shards. It is the same on all machines.
const count = 16

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := dlock.Open("mem", "")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	if err := serve(ctx, client, work); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

// step does some of a shard's work, and returns how long to wait before the next
// step.
type step func(ctx context.Context, shard int, token int64) (pause time.Duration, err error)

// serve works on this machine's shards until ctx ends.
func serve(ctx context.Context, client *dlock.Client, next step) error {
	return shards.Run(ctx, client, "mail", count, func(ctx context.Context, lock *dlock.Lock, shard int) error {
		for ctx.Err() == nil { // until the shard moves, its lock is lost, or the machine stops
			pause, err := next(ctx, shard, lock.Token())
			if err != nil && ctx.Err() == nil {
				log.Printf("shard %d: %v", shard, err) // with return err, this machine would give up all shards
			}
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
		return nil
	})
}

// work should send its token with each write, so that late writes are refused.
func work(_ context.Context, shard int, token int64) (time.Duration, error) {
	log.Printf("shard %d: one step, with token %d", shard, token)
	return time.Second, nil
}
