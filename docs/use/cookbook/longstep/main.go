// The program longstep takes a step that cannot be undone, after a long one.
package main

import (
	"context"
	"fmt"
	"hash/crc32"
	"log"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/memdriver"
)

func main() {
	client, err := dlock.Open("mem", "")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	if err := publish(context.Background(), client, checksum, send); err != nil {
		log.Fatal(err)
	}
}

// publish computes a price under a lock and sends it.
func publish(ctx context.Context, client *dlock.Client, compute func() uint32, send func(price uint32, token int64)) error {
	return client.RWMutex("price").WithLock(ctx, func(ctx context.Context, lock *dlock.Lock) error {
		// While this computes, or while the process is stopped, perhaps no
		// timer fires and no goroutine cancels ctx.
		price := compute()

		// So ctx.Err() may still be nil, although the lock has passed to another
		// process. lock.Err() reads the clock.
		if err := lock.Err(); err != nil {
			return err
		}
		send(price, lock.Token()) // cannot be undone
		return nil
	})
}

// checksum stands for a long computation that keeps a processor busy.
func checksum() (sum uint32) {
	for range 1000 {
		sum = crc32.Update(sum, crc32.IEEETable, make([]byte, 4096))
	}
	return sum
}

func send(price uint32, token int64) { fmt.Printf("sent %d with token %d\n", price, token) }
