// The program onehold changes one thing many times from one process, and takes
// its lock only once, unless another process waits for it.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/memdriver"
)

func main() {
	client, err := dlock.Open("mem", "")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	h := share(client.RWMutex("stock/42"))
	tokens := make(map[int64]int) // guarded by the lock
	var sales errgroup.Group
	for range 100 {
		sales.Go(func() error {
			return h.do(context.Background(), func(_ context.Context, token int64) error {
				tokens[token]++
				return nil
			})
		})
	}
	if err := sales.Wait(); err != nil {
		log.Fatal(err)
	}
	h.close()
	fmt.Println("sales by token:", tokens)
}

// hold lets the goroutines of a process take turns in holding a lock.
type hold struct {
	lock *dlock.RWMutex
	// turn holds the current Lock, which may be nil, lost or unlocked. The
	// goroutine that receives it has the turn, and sends a Lock back.
	turn   chan *dlock.Lock
	giving sync.WaitGroup // the calls of giveBack
}

func share(m *dlock.RWMutex) *hold {
	h := &hold{lock: m, turn: make(chan *dlock.Lock, 1)}
	h.turn <- nil
	return h
}

// do calls work while this goroutine alone holds the lock. A loss ends work's
// context. All turns with the same Lock share a token.
func (h *hold) do(ctx context.Context, work func(ctx context.Context, token int64) error) error {
	var l *dlock.Lock
	select {
	case l = <-h.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { h.turn <- l }()
	if l.Err() != nil {
		_ = l.Unlock() // an earlier turn has returned the error
		next, err := h.lock.Lock(ctx)
		if err != nil {
			return err
		}
		l = next
		h.giving.Go(func() { h.giveBack(next) })
	}
	inner, end := context.WithCancel(ctx)
	defer end() // or the Lock would keep each context
	return errors.Join(work(l.Context(inner), l.Token()), l.Err())
}

// giveBack waits until another process wants the lock, and unlocks it between
// two turns. The next turn then waits behind that process.
func (h *hold) giveBack(l *dlock.Lock) {
	select {
	case <-l.Wanted():
	case <-l.Context(context.Background()).Done(): // lost, or unlocked by close
		return
	}
	current := <-h.turn
	_ = l.Unlock() // on error, the lock is freed later
	h.turn <- current
}

// close gives the lock back. Call it when all calls of do have returned.
func (h *hold) close() {
	l := <-h.turn
	_ = l.Unlock()
	h.turn <- l
	h.giving.Wait()
}
