package driver_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

// One contender hands its lock over to another, with the same calls that
// package recipes makes.
func Example() {
	ctx := context.Background()
	session, err := memdriver.New().Connect(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()

	holder, err := session.Create(ctx, "stock/42", driver.NodeSpec{Prefix: "web1-W-", Data: []byte("1")})
	if err != nil {
		log.Fatal(err)
	}
	waiter, err := session.Create(ctx, "stock/42", driver.NodeSpec{Prefix: "web2-W-", Data: []byte("2")})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(holder.Name, "is alone:", holder.Alone())
	fmt.Println(waiter.Name, "is behind", waiter.Ahead[0].Name)

	watch, err := session.Watch(ctx, "stock/42", waiter.Place, holder.Node)
	if err != nil {
		log.Fatal(err)
	}
	defer watch.Stop()
	if err := session.Delete(ctx, "stock/42", holder.Place, driver.Released); err != nil {
		log.Fatal(err)
	}
	fmt.Println("the watch says:", <-watch.C)
	// Output:
	// web1-W-0000000000 is alone: true
	// web2-W-0000000001 is behind web1-W-0000000000
	// the watch says: released
}

// The lease begins with the store's first answer and ends with the session.
func ExampleLease() {
	lease := driver.NewLease(10*time.Second, 0)
	fmt.Println("term:", lease.Term())

	err := lease.Begin(func() error {
		return nil // the store's answer: it has begun a session
	})
	fmt.Println("error while the session lives:", err)

	lease.End(errors.New("closed"))
	<-lease.Done()
	fmt.Println("error after the end:", lease.Err())
	// Output:
	// term: 7.5s
	// error while the session lives: <nil>
	// error after the end: session ended: closed
}

func ExampleParseName() {
	name := driver.FormatName("web1-W-", 7)
	fmt.Println(name)
	fmt.Println(driver.ParseName(name))
	// Output:
	// web1-W-0000000007
	// web1-W- 7 true
}

func ExampleCheckQueue() {
	fmt.Println(driver.CheckQueue("stock/42"))
	fmt.Println(driver.CheckQueue("stock/.."))
	// Output:
	// <nil>
	// bad name: "stock/.." has a segment ".."
}

// plainSession hides the methods of driver.Inspector.
type plainSession struct{ driver.Session }

// Inspect accepts any session. If the session is no Inspector, the methods
// return errors that match errors.ErrUnsupported.
func ExampleInspect() {
	ctx := context.Background()
	session, err := memdriver.New().Connect(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	writer, err := session.Create(ctx, "stock/42", driver.NodeSpec{Prefix: "web1-W-"})
	if err != nil {
		log.Fatal(err)
	}

	_, err = driver.Inspect(plainSession{session}).Read(ctx, "stock/42", writer.Name)
	fmt.Println(errors.Is(err, errors.ErrUnsupported))
	info, err := driver.Inspect(session).Read(ctx, "stock/42", writer.Name)
	fmt.Println(info.Name, err)
	// Output:
	// true
	// web1-W-0000000000 <nil>
}
