package watches_test

import (
	"fmt"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/watches"
)

// A waiter watches its own node and the holder's node. The first poll of the
// store finds both nodes. Then the holder releases the lock, and finally the
// waiter's node is lost.
func Example() {
	holder := driver.Place{Node: driver.Node{Name: "a-W-0000000001", Seq: 1}, Token: 1}
	waiter := driver.Place{Node: driver.Node{Name: "b-W-0000000002", Seq: 2}, Token: 2}

	var set watches.Set
	watch := set.Arm("stock/42", waiter, holder.Node)
	defer watch.Stop()

	before := set.Mark()
	nodes := []driver.Place{holder, waiter} // the store's list, which has no version
	set.Compare("stock/42", before, nil, nodes, driver.Node{}, nil)

	set.Gone("stock/42", holder.Node, driver.Released)
	fmt.Println(<-watch.C)

	set.Gone("stock/42", waiter.Node, driver.Changed)
	_, open := <-watch.C
	fmt.Println("open:", open)
	// Output:
	// released
	// open: false
}
