package shards_test

import (
	"context"
	"fmt"
	"log"
	"sync/atomic"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/memdriver"
	"github.com/dlock-go/dlock/shards"
)

// A process that is alone works on all shards. If another process calls Run
// with the same name, it gets half of them.
func ExampleRun() {
	client, err := dlock.Open("mem", "")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	ctx, stop := context.WithCancel(context.Background()) // a real program uses signal.NotifyContext
	var begun atomic.Int32
	err = shards.Run(ctx, client, "mail", 4, func(ctx context.Context, lock *dlock.Lock, shard int) error {
		if begun.Add(1) == 4 {
			fmt.Println("working on all shards")
			stop()
		}
		<-ctx.Done() // stands for work that sends lock.Token()
		return nil
	})
	fmt.Println(err)

	// Output:
	// working on all shards
	// dlock: mail: context canceled
}
