// The program semaphore calls a service that allows three calls at a time.
package main

import (
	"context"
	"fmt"
	"log"

	"golang.org/x/sync/errgroup"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/memdriver"
)

// allowed is how many calls the service allows at a time. It must be the same
// in all programs that use the semaphore.
const allowed = 3

func main() {
	client, err := dlock.Open("mem", "")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	var s service
	calls, ctx := errgroup.WithContext(context.Background())
	for i := range 10 {
		calls.Go(func() error { return call(ctx, client, 1+i%2, s.call) })
	}
	if err := calls.Wait(); err != nil {
		log.Fatal(err)
	}
	fmt.Println("10 calls, never more than", allowed, "at a time:", s.most() <= allowed)
}

// call takes one unit for each call that f makes, and then runs f.
func call(ctx context.Context, client *dlock.Client, weight int, f func(ctx context.Context, n int) error) error {
	slot, err := client.Semaphore("partner/calls", allowed).Acquire(ctx, weight)
	if err != nil {
		return err
	}
	defer slot.Unlock()                 // an error means that the units stay taken for a while
	return f(slot.Context(ctx), weight) // ends if the units are lost
}
