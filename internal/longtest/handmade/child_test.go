package handmade

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

// childVariable makes the test binary a child: a process that contends for one lock.
// Its value is a setting in JSON.
const childVariable = "DLOCK_TEST_HANDMADE_CHILD"

// A setting says which lock a child uses.
type setting struct {
	Lock    string        // the key in the map locks
	Servers []string      // data source names or addresses
	Expiry  time.Duration // for locks that expire
	Number  int           // for locks that have a number
	Ahead   time.Duration // by how much the clock of the process is ahead
}

// A locker is the lock as one process uses it.
type locker interface {
	// lock returns when the process holds the lock. It also returns the token, or 0
	// if the lock has none.
	lock(ctx context.Context) (token int64, err error)
	// check returns nil as long as the process has to believe that it holds the lock.
	// Otherwise the error says why it does not. The process asks no server.
	check() error
	// unlock gives the lock back. An error says that the lock was not given back, or
	// was not held any more, if the lock can tell.
	unlock(ctx context.Context) error
}

// locks are the locks that a child can use.
var locks = map[string]func(s setting, p *points) (locker, error){
	"dlock":            newDlock,
	"row":              newRowLock,
	"for update":       newForUpdate,
	"advisory":         newAdvisory,
	"setnx":            newSetnx,
	"setnx, expire":    newSetnxExpire,
	"set nx px":        newSetWithExpiry,
	"get, del":         newComparedByClient,
	"script":           newComparedByScript,
	"script, watchdog": newWatched,
	"redlock":          newRedlock,

	"script, watchdog until unlocked": newWatchedUntilUnlocked,
}

// points are the places in a lock at which a test can stop the process.
type points struct {
	orders *bufio.Scanner
	stops  map[string]bool
	waits  bool // whether the test knows that the process waits
}

// reach is called by a lock that gets to such a place.
func (p *points) reach(name string) {
	if p.stops[name] {
		fmt.Println("at", name)
		p.orders.Scan() // the order to go on
	}
}

// refused is called by a lock that another process holds. It returns when the lock may
// try again. The name of the place is "retry".
func (p *points) refused() {
	p.wait()
	p.reach("retry")
	time.Sleep(5 * time.Millisecond)
}

// wait tells the test once that the process waits for the lock.
func (p *points) wait() {
	if !p.waits {
		p.waits = true
		fmt.Println("waiting")
	}
}

// runChild is the main function of a child. It reads orders, a line each, and answers
// each of them with a line. The order "lock" has the answers "waiting", if another
// process holds the lock, and in the end "held" with the token. The order "write"
// stands for a request to a resource: the answer is the request.
func runChild(text string) int {
	var s setting
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		fmt.Println(err)
		return 1
	}
	p := &points{orders: bufio.NewScanner(os.Stdin), stops: make(map[string]bool)}
	lock, err := locks[s.Lock](s, p)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	ctx := context.Background() // the test kills the process
	var token int64
	for p.orders.Scan() {
		order, point, _ := strings.Cut(p.orders.Text(), ":")
		switch order {
		case "stop":
			p.stops[point] = true
			fmt.Println("ok")
		case "lock":
			p.waits = false
			if token, err = lock.lock(ctx); err != nil {
				fmt.Println("failed:", err)
			} else {
				fmt.Println("held", token)
			}
		case "check":
			say("holds", lock.check())
		case "write":
			fmt.Println("write", token)
		case "unlock":
			say("unlocked", lock.unlock(ctx))
		default:
			fmt.Println("unknown order:", order)
		}
	}
	return 0
}

// say prints the word, or why it is not true.
func say(word string, err error) {
	if err != nil {
		word = "failed: " + strings.ReplaceAll(err.Error(), "\n", " ")
	}
	fmt.Println(word)
}
