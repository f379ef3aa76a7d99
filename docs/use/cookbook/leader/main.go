// The program leader runs on several machines. One of them leads and does the
// work, and when it stops, another one takes over.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/memdriver" // for several machines: redisdriver or another
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := dlock.Open("mem", "")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	host, err := os.Hostname()
	if err != nil {
		log.Fatal(err)
	}
	go follow(ctx, client.Election("scheduler"), func(leader string) { log.Printf("leader: %q", leader) })
	if err := campaign(ctx, client, host+":8080", work); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

type job func(ctx context.Context, token int64) error

// campaign works whenever this machine leads, until ctx ends. Observers get addr.
func campaign(ctx context.Context, client *dlock.Client, addr string, work job) error {
	e := client.Election("scheduler", dlock.WithData([]byte(addr)))
	return e.Run(ctx, func(ctx context.Context, term *dlock.Lock) error {
		var workers errgroup.Group
		for range 3 {
			workers.Go(func() error { return work(ctx, term.Token()) }) // ctx ends with the term
		}
		return workers.Wait() // Run gives the term up when this function has returned
	})
}

// follow calls use with each new leader's address, or with an empty one if there
// is no leader or the store cannot be reached.
func follow(ctx context.Context, e *dlock.Election, use func(addr string)) {
	for leader, err := range e.Observe(ctx) {
		if err != nil {
			log.Print(err) // Observe goes on when the store is back
		}
		use(leader.Record.Data)
	}
}

// work should send its token with each write, so that late writes are refused.
func work(ctx context.Context, token int64) error {
	for ctx.Err() == nil {
		log.Printf("one step, with token %d", token)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return nil
}
