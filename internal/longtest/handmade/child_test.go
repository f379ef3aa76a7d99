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

// childVariable turns the test binary into a contender. Its value is a setting
// in JSON.
const childVariable = "DLOCK_TEST_HANDMADE_CHILD"

// A setting selects and configures a contender's lock.
type setting struct {
	Lock    string        // key in locks
	Servers []string      // data source names or addresses
	Expiry  time.Duration // for locks that expire
	Number  int           // for locks with a numeric key
	Ahead   time.Duration // how far the process's clock is ahead
}

// A locker is a lock as used by one process.
type locker interface {
	// lock blocks until the process holds the lock. The token is 0 if the
	// lock has none.
	lock(ctx context.Context) (token int64, err error)
	// check returns an error if the process can know that it does not hold
	// the lock. It asks no server.
	check() error
	// unlock releases the lock. If the lock can tell, the error says that
	// it was no longer held.
	unlock(ctx context.Context) error
}

var locks = map[string]func(s setting, p *points) (locker, error){
	"dlock":            newDlock,
	"dlock, majority":  newMajority,
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

// points are named places in a lock at which a test can stop the process.
type points struct {
	orders *bufio.Scanner
	stops  map[string]bool
	waits  bool // "waiting" has been printed
}

// reach blocks at the named place in a lock if the test has asked for a stop
// there.
func (p *points) reach(name string) {
	if p.stops[name] {
		fmt.Println("at", name)
		p.orders.Scan() // blocks until the test says go on
	}
}

// refused is called when another process holds the lock. It sleeps before the
// next try.
func (p *points) refused() {
	p.wait()
	p.reach("retry")
	time.Sleep(5 * time.Millisecond)
}

// wait tells the test, once, that this process has to wait.
func (p *points) wait() {
	if !p.waits {
		p.waits = true
		fmt.Println("waiting")
	}
}

// runChild is the main function of a child process. It answers each line of
// input with a line. "lock" is answered by "waiting" if another process holds
// the lock, and then by "held" and the token.
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
	ctx := context.Background() // not cancelled, because the test kills the process
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
			fmt.Println("write", token, tokens(lock))
		case "unlock":
			say("unlocked", lock.unlock(ctx))
		default:
			fmt.Println("unknown order:", order)
		}
	}
	return 0
}

func say(word string, err error) {
	if err != nil {
		word = "failed: " + strings.ReplaceAll(err.Error(), "\n", " ")
	}
	fmt.Println(word)
}
