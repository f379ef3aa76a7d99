package command

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dlock-go/dlock"
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
  WAITED   how long ago the first waiter joined

A host or program may be forged by anybody who can write to the store.

With -json, each look is a JSON object on a line of its own, with the fields store,
time, locks, and more, the number of locks that were left out. A lock has the
fields lock and contenders, as dlock queue -json prints them.

Exit status: 0, the locks were shown, also if there are none; 1, the store could
not be reached or failed; 2, the arguments are not valid.

Flags:
`

const (
	topEvery  = 2 * time.Second
	mostLooks = 500 // the most queues to list, which limits the load on the store
	sideLooks = 8   // how many queues to list at the same time
)

// top implements "dlock top".
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
	if *rows < 1 || *every < 0 {
		t.say("-rows must be positive, and -every must not be negative")
		return usageStatus
	}
	if *every == 0 && isTerminal(stdout) && !t.json {
		*every = topEvery
	}
	prefix := append(arguments, "")[0]
	seen, err := t.glance(ctx, client, prefix)
	if err != nil {
		return t.failed(err)
	}
	t.showAll(seen, *rows)
	for *every > 0 {
		select {
		case <-time.After(*every):
		case <-ctx.Done():
			return 0
		}
		switch seen, err := t.glance(ctx, client, prefix); {
		case ctx.Err() != nil:
			return 0
		case err != nil:
			t.say(t.explain(err) + "; trying again")
		default:
			t.showAll(seen, *rows)
		}
	}
	return 0
}

// glance is the state of a store's locks, and the JSON that dlock top -json
// prints. Do not rename the fields, because programs read them.
type glance struct {
	Store string      `json:"store"`
	Time  time.Time   `json:"time"`
	Locks []lockState `json:"locks"`
	More  int         `json:"more"` // locks that were left out

	all [][]dlock.Contender // the contenders of each lock in Locks
}

type lockState struct {
	Lock       string           `json:"lock"`
	Contenders []contenderState `json:"contenders"`
}

// glance lists the queues of all locks, those with most waiters first. If there
// are too many locks, it lists those whose names come first.
func (t *tool) glance(ctx context.Context, client *dlock.Client, prefix string) (glance, error) {
	ctx, cancel := t.limit(ctx)
	defer cancel()
	names, err := client.Walk(ctx, prefix)
	if err != nil {
		return glance{}, err
	}
	g := glance{More: max(0, len(names)-mostLooks)}
	names = names[:len(names)-g.More]
	queues := make([][]dlock.Contender, len(names))
	looks, ctx := errgroup.WithContext(ctx)
	looks.SetLimit(sideLooks)
	for i, name := range names {
		looks.Go(func() (err error) {
			queues[i], err = client.RWMutex(name).Queue(ctx)
			return err
		})
	}
	if err := looks.Wait(); err != nil {
		return glance{}, err
	}
	g.Store, g.Time = t.storeName(), time.Now()
	order := make([]int, 0, len(names))
	for i := range names {
		if len(queues[i]) > 0 { // otherwise the lock was released after Walk
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(waiters(queues[b]), waiters(queues[a])) })
	for _, i := range order {
		state := lockState{Lock: names[i]}
		for _, c := range queues[i] {
			state.Contenders = append(state.Contenders, stateOf(c, g.Time))
		}
		g.Locks, g.all = append(g.Locks, state), append(g.all, queues[i])
	}
	return g, nil
}

func waiters(queue []dlock.Contender) (n int) {
	for _, c := range queue {
		if !c.Holds {
			n++
		}
	}
	return n
}

// cut returns g with no more than the given number of locks.
func (g glance) cut(most int) glance {
	if over := len(g.Locks) - most; over > 0 {
		g.Locks, g.all, g.More = g.Locks[:most], g.all[:most], g.More+over
	}
	return g
}

func (t *tool) showAll(g glance, rows int) {
	g = g.cut(rows)
	if t.json {
		_ = json.NewEncoder(t.stdout).Encode(g) // output.status reports write errors
		return
	}
	if isTerminal(t.stdout) {
		fmt.Fprint(t.stdout, "\x1b[H\x1b[2J") // home, clear
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

// rows returns the cells of each lock, for topColumns.
func (g glance) rows() (rows [][]string) {
	for i, queue := range g.all {
		n := waiters(queue)
		row := []string{short(g.Locks[i].Lock, 30), fmt.Sprint(len(queue) - n), fmt.Sprint(n), "-", "-", "-", "-", "-", "-", "-"}
		if first := slices.IndexFunc(queue, func(c dlock.Contender) bool { return c.Holds }); first >= 0 {
			c := queue[first]
			copy(row[3:], []string{modeOf(c), short(c.Host, 16), number(int64(c.Record.PID)), short(c.Record.Program, 14), age(c, g.Time), left(c)})
		}
		if first := slices.IndexFunc(queue, func(c dlock.Contender) bool { return !c.Holds }); first >= 0 {
			row[9] = age(queue[first], g.Time)
		}
		rows = append(rows, row)
	}
	return rows
}
