package ensemble

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/dlock-go/dlock"
)

// childVariable is an environment variable with a data source name. If it is
// set, the test binary holds a lock instead of running tests.
const childVariable = "DLOCK_TEST_ENSEMBLE_CHILD"

// child is the main function of a child process. It holds a lock and prints
// Lock.Err for each input line. It calls no other method, because the first
// call of Err after a pause must already report the loss.
func child(dsn string) int {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	client, err := dlock.Open("zk", dsn, quiet())
	if err != nil {
		fmt.Println(err)
		return 1
	}
	lock, err := client.RWMutex("q").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("held")
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		switch err := lock.Err(); {
		case err == nil:
			fmt.Println("in time")
		case errors.Is(err, dlock.ErrLost):
			fmt.Printf("lost: %v\n", err)
		default:
			fmt.Println("neither held nor lost:", err)
		}
	}
	return 0
}
