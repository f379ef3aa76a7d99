package command

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/brief"
)

const topHelp = `Usage: dlock top [flags] [PREFIX]

Shows all locks that somebody holds or waits for, those with most waiters first.
On a terminal, it looks again every two seconds, until Ctrl-C. The PREFIX stock
matches stock and stock/42, and not stocks.

  LOCK     the name of the lock
  HOLD, WAIT
           how many hold it, and how many wait for it
  MODE, HOST, PID, PROGRAM, LEFT
           of the holder that joined first, as in dlock queue
  FOR      how long ago that holder joined the queue
  WAITED   how long ago the first waiter joined, or why the queue is not known

A host or program may be forged by anybody who can write to the store. Of more than
500 locks, it looks at those whose names come first.

With -json, each look is a JSON object on a line of its own, with the fields store,
time, locks, and more, the number of locks that were left out. A lock has the
fields lock and contenders, as dlock queue -json prints them; error says why the
queue is not known. Only the first holder and the first waiter are read: of others,
state, mode, node and host are known.

Exit status: 0, the locks were shown, also if there are none; 1, the store could
not be reached or failed; 2, the arguments are not valid.

Flags:
`

const (
	topEvery  = 2 * time.Second
	topLeast  = 100 * time.Millisecond
	mostLooks = 500 // most queues to list, to limit load
	sideLooks = 8   // how many queues to list at once
)

func top(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	t := newTool("top", topHelp, "one prefix at most", args, stdout, stderr)
	t.flags.BoolVar(&t.json, "json", false, "print JSON")
	rows := t.flags.Int("rows", 40, "how many locks to show at most")
	every := t.flags.Duration("every", 0, "look again after this time, until Ctrl-C (on a terminal 2s if not given)")
	arguments, client, status := t.open(0, 1, dlock.WithReadOnly())
	if client == nil {
		return status
	}
	defer client.Close()
	if *rows < 1 || *every != 0 && *every < topLeast {
		t.say(fmt.Sprintf("-rows must be positive, and -every at least %v", topLeast))
		return usageStatus
	}
	if *every == 0 && isTerminal(stdout) && !t.json {
		*every = topEvery
	}
	prefix := append(arguments, "")[0]
	return t.repeat(ctx, *every, func() error {
		seen, err := t.glance(ctx, client, prefix)
		if err == nil {
			t.showAll(seen.cut(*rows))
		}
		return err
	})
}

// glance is the state of a store's locks, and the JSON that dlock top -json
// prints. Do not rename the fields, because programs read them.
type glance struct {
	Store string      `json:"store"`
	Time  time.Time   `json:"time"`
	Locks []lockState `json:"locks"`
	More  int         `json:"more"` // locks that were left out
}

type lockState struct {
	Lock       string           `json:"lock"`
	Contenders []contenderState `json:"contenders"`
	Error      string           `json:"error,omitempty"` // why the contenders are unknown

	queue []dlock.Contender
}

// glance lists the first mostLooks locks by name, sorted by their waiters. It
// fails only if it can read none.
func (t *tool) glance(ctx context.Context, client *dlock.Client, prefix string) (glance, error) {
	ctx, cancel := t.limit(brief.With(ctx))
	defer cancel()
	names, err := client.Walk(ctx, prefix)
	if err != nil {
		return glance{}, err
	}
	locks := make([]lockState, min(len(names), mostLooks))
	var looks errgroup.Group
	looks.SetLimit(sideLooks)
	for i := range locks {
		looks.Go(func() (err error) {
			locks[i], err = t.lockState(ctx, client.RWMutex(names[i]))
			return err
		})
	}
	if err = looks.Wait(); err != nil && !slices.ContainsFunc(locks, func(l lockState) bool { return l.Error == "" }) {
		return glance{}, err
	}
	locks = slices.DeleteFunc(locks, func(l lockState) bool { return l.Error == "" && len(l.queue) == 0 }) // released since Walk
	slices.SortStableFunc(locks, func(a, b lockState) int { return cmp.Compare(b.waiters(), a.waiters()) })
	return glance{t.storeName(), time.Now(), locks, max(0, len(names)-mostLooks)}, nil
}

func (t *tool) lockState(ctx context.Context, lock *dlock.RWMutex) (l lockState, err error) {
	l.Lock = lock.Name()
	if l.queue, err = lock.Queue(ctx); err != nil {
		l.Error = t.clean(t.explain(err))
	}
	l.Contenders = statesOf(l.queue, time.Now())
	return l, err
}

// waiters returns the number of waiters, or a large number after an error, so
// that errors are listed first.
func (l lockState) waiters() (n int) {
	if l.Error != "" {
		return math.MaxInt
	}
	for _, c := range l.queue {
		if !c.Holds {
			n++
		}
	}
	return n
}

func (g glance) cut(most int) glance {
	if over := len(g.Locks) - most; over > 0 {
		g.Locks, g.More = g.Locks[:most], g.More+over
	}
	return g
}

func (t *tool) showAll(g glance) {
	if t.json {
		_ = json.NewEncoder(t.stdout).Encode(g) // output.status reports write errors
		return
	}
	if isTerminal(t.stdout) {
		fmt.Fprint(t.stdout, clear)
	}
	fmt.Fprintf(t.stdout, "%s at %s\n", printable(g.Store), g.Time.Format(time.TimeOnly))
	if len(g.Locks) == 0 {
		fmt.Fprintln(t.stdout, "nobody holds a lock or waits for one")
		return
	}
	fmt.Fprint(t.stdout, aligned(append([][]string{topColumns}, g.rows()...), 2))
	if g.More > 0 {
		fmt.Fprintf(t.stdout, "and %d more locks\n", g.More)
	}
}

var topColumns = []string{"LOCK", "HOLD", "WAIT", "MODE", "HOST", "PID", "PROGRAM", "FOR", "LEFT", "WAITED"}

func (g glance) rows() (rows [][]string) {
	for _, l := range g.Locks {
		n := l.waiters()
		row := []string{short(l.Lock, 30), fmt.Sprint(len(l.queue) - n), fmt.Sprint(n), "-", "-", "-", "-", "-", "-", "-"}
		if first := slices.IndexFunc(l.queue, func(c dlock.Contender) bool { return c.Holds }); first >= 0 {
			c := l.queue[first]
			copy(row[3:], []string{modeOf(c), short(c.Host, 16), number(int64(c.Record.PID)), short(c.Record.Program, 14), age(c, g.Time), left(c)})
		}
		if first := slices.IndexFunc(l.queue, func(c dlock.Contender) bool { return !c.Holds }); first >= 0 {
			row[9] = age(l.queue[first], g.Time)
		}
		if l.Error != "" {
			row[1], row[2], row[9] = "?", "?", cell(l.Error)
		}
		rows = append(rows, row)
	}
	return rows
}
