package calls_test

import (
	"context"
	"fmt"

	"github.com/dlock-go/dlock/driver/calls"
)

// client stands for a client library whose functions take no context.
type client struct {
	asked   chan struct{} // closed by Create
	release chan struct{}
}

func (c client) Create() (string, error) {
	close(c.asked)
	<-c.release // wait for the store's answer
	return "node-0000000007", nil
}

func (c client) Delete(name string) { fmt.Println("deleted", name) }

// The caller gives up before the call has created a node. The clean-up removes
// that node later.
func ExampleDo() {
	store := client{asked: make(chan struct{}), release: make(chan struct{})}
	group := calls.NewGroup(16)

	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-store.asked
		cancel()
	}()
	_, err := calls.Do(ctx, group, store.Create, func(name string, err error) {
		if err == nil {
			store.Delete(name)
		}
	})
	fmt.Println(err)

	close(store.release)
	_ = group.Wait(context.Background()) // as in the Close of a session
	// Output:
	// context canceled
	// deleted node-0000000007
}

// Closing a session's Gate ends the calls in flight and rejects later ones.
func ExampleGate() {
	var gate calls.Gate
	ctx, leave, open := gate.Enter(context.Background())
	fmt.Println("before Close:", open)
	go func() {
		defer leave()
		<-ctx.Done() // a request that takes long
	}()

	gate.Close()
	_, _, open = gate.Enter(context.Background())
	fmt.Println("after Close:", open)
	// Output:
	// before Close: true
	// after Close: false
}
