package calls_test

import (
	"context"
	"fmt"

	"github.com/dlock-go/dlock/driver/calls"
)

// client is a client library whose functions take no context.
type client struct {
	asked   chan struct{} // closed by Create
	release chan struct{}
}

func (c client) Create() (string, error) {
	close(c.asked)
	<-c.release // waits for the answer of the store
	return "node-0000000007", nil
}

func (c client) Delete(name string) { fmt.Println("deleted", name) }

// A caller gives up. Later the call creates a node, and the clean-up removes it.
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
	_ = group.Wait(context.Background()) // a session's Close waits in the same way
	// Output:
	// context canceled
	// deleted node-0000000007
}

// A session registers each call with its Gate. Close of the session closes the
// Gate. This ends the calls in flight, and the Gate refuses later calls.
func ExampleGate() {
	var gate calls.Gate
	ctx, leave, open := gate.Enter(context.Background())
	fmt.Println("before Close:", open)
	go func() {
		defer leave()
		<-ctx.Done() // stands for a request that takes long
	}()

	gate.Close()
	_, _, open = gate.Enter(context.Background())
	fmt.Println("after Close:", open)
	// Output:
	// before Close: true
	// after Close: false
}
