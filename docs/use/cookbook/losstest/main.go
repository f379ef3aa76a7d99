// The program losstest pays invoices. Its tests lose the lock at each step.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/memdriver"
)

// bank is the interface that a test replaces by a fake.
type bank interface {
	Open(ctx context.Context) (invoices []string, err error)
	Pay(ctx context.Context, invoice string) error
}

// payAll pays all open invoices. After an error, call it again.
func payAll(ctx context.Context, client *dlock.Client, b bank) (err error) {
	lock, err := client.RWMutex("invoices").Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	ctx = lock.Context(ctx)
	invoices, err := b.Open(ctx)
	if err != nil {
		return err
	}
	for _, invoice := range invoices {
		if err := lock.Err(); err != nil {
			return err // another process may be paying them
		}
		if err := b.Pay(ctx, invoice); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	client, err := dlock.Open("mem", "")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	if err := payAll(context.Background(), client, printer{}); err != nil {
		log.Fatal(err)
	}
}

// printer is a bank that only prints the invoices to pay.
type printer struct{}

func (printer) Open(context.Context) ([]string, error) { return []string{"A", "B", "C"}, nil }

func (printer) Pay(_ context.Context, invoice string) error {
	fmt.Println("paid", invoice)
	return nil
}
