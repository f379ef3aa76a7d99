package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/dlock-go/dlock"
)

const queueHelp = `Usage: dlock queue [flags] NAME

Shows who holds the lock NAME and who waits for it, in the order of the queue,
and names the store on standard error:

  STATE    holds or waits
  MODE     exclusive, or shared with others; for a semaphore, its units
  HOST, PID, PROGRAM
           the process, as it has described itself
  TOKEN    the fencing token
  SINCE    when it joined the queue, by the store's clock if that is known
  FOR      how long ago that was, by the clock of this machine
  LEFT     how long the store keeps its session if it hears nothing more from
           it; - if the store does not tell, as ZooKeeper and NATS
  NODE     the name of its node, for dlock release
  DATA     what the program has added, such as a leader's address, if any

A host, program, node or data may be forged by anybody who can write to the store.
Text that does not print, or contains spaces, is quoted.

With -json, each state of the queue is a JSON object on a line of its own, with
the fields lock, store, time and contenders. A contender has the fields state, mode,
node, token and, where they are known, host, pid, program, since, for_seconds,
session, session_left_seconds, data (text) and bytes (other data, in base64);
for a semaphore also units and of_units.

Exit status: 0, the queue was shown, also if nobody is in it; 1, the store could
not be reached or failed; 2, the arguments are not valid. -watch ends with 0 at
Ctrl-C.

Flags:
`

// lookEvery is how often dlock queue -watch lists the queue.
const lookEvery = time.Second

func queue(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	t := newTool("queue", queueHelp, "the name of one lock", args, stdout, stderr)
	t.flags.BoolVar(&t.json, "json", false, "print JSON")
	watch := t.flags.Bool("watch", false, "show the queue again at each change of it, until Ctrl-C")
	arguments, client, status := t.open(1, 1, dlock.WithReadOnly())
	if client == nil {
		return status
	}
	defer client.Close()
	lock, every := client.RWMutex(arguments[0]), time.Duration(0)
	if *watch {
		every = lookEvery
	}
	var shown []dlock.Contender // nil at first, and after an error
	first := true
	return t.repeat(ctx, every, func() error {
		contenders, err := t.look(ctx, lock)
		if err == nil && (shown == nil || !slices.EqualFunc(shown, contenders, sameState)) {
			switch {
			case t.json:
			case first:
				t.say("the store is " + t.storeName())
			case isTerminal(t.stdout):
				fmt.Fprint(t.stdout, clear)
			default:
				fmt.Fprintln(t.stdout)
			}
			t.show(lock.Name(), contenders)
			first = false
		}
		shown = contenders
		return err
	})
}

func (t *tool) look(ctx context.Context, lock *dlock.RWMutex) ([]dlock.Contender, error) {
	ctx, cancel := t.limit(ctx)
	defer cancel()
	return lock.Queue(ctx)
}

const clear = "\x1b[H\x1b[2J" // home, clear

// repeat calls look until ctx ends, or once if every is zero. Only a failed
// first call ends it early.
func (t *tool) repeat(ctx context.Context, every time.Duration, look func() error) (status int) {
	for first, failing := true, false; ; first = false {
		err := look()
		switch {
		case err != nil && first:
			return t.failed(err)
		case err != nil && !failing && ctx.Err() == nil:
			t.say(t.explain(err) + "; trying again")
		}
		if failing = err != nil; every == 0 {
			return 0
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return 0
		}
	}
}

func sameState(a, b dlock.Contender) bool {
	return a.Node == b.Node && a.Token == b.Token && a.Holds == b.Holds && a.Mode == b.Mode
}

func isTerminal(w any) bool {
	if o, ok := w.(*output); ok {
		w = o.file
	}
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

func (t *tool) show(lock string, contenders []dlock.Contender) {
	now := time.Now()
	switch {
	case t.json:
		state := queueState{Lock: lock, Store: t.storeName(), Time: now, Contenders: statesOf(contenders, now)}
		_ = json.NewEncoder(t.stdout).Encode(state) // output.status reports write errors
	case len(contenders) == 0:
		fmt.Fprintf(t.stdout, "nobody holds %s or waits for it\n", cell(lock))
	default:
		fmt.Fprint(t.stdout, table(contenders, now))
	}
}

// queueState and contenderState are the JSON that dlock queue -json prints. Do
// not rename the fields, because programs read them.
type queueState struct {
	Lock       string           `json:"lock"`
	Store      string           `json:"store"`
	Time       time.Time        `json:"time"`
	Contenders []contenderState `json:"contenders"`
}

type contenderState struct {
	State       string     `json:"state"`
	Mode        dlock.Mode `json:"mode"`
	Units       int        `json:"units,omitempty"`
	OfUnits     int        `json:"of_units,omitempty"`
	Node        string     `json:"node"`
	Token       int64      `json:"token"`
	Host        string     `json:"host,omitempty"`
	PID         int        `json:"pid,omitempty"`
	Program     string     `json:"program,omitempty"`
	Since       *time.Time `json:"since,omitempty"`
	For         float64    `json:"for_seconds,omitempty"`
	Session     string     `json:"session,omitempty"`
	SessionLeft float64    `json:"session_left_seconds,omitempty"`
	Data        string     `json:"data,omitempty"`
	Bytes       []byte     `json:"bytes,omitempty"`
}

func statesOf(contenders []dlock.Contender, now time.Time) []contenderState {
	states := make([]contenderState, len(contenders)) // not nil, which would be null in JSON
	for i, c := range contenders {
		states[i] = contenderState{
			State: stateName(c), Mode: c.Mode, Units: c.Units, OfUnits: c.OfUnits, Node: c.Node, Token: c.Token,
			Host: c.Host, PID: c.Record.PID, Program: c.Record.Program,
			Session: c.Owner, SessionLeft: c.SessionLeft.Seconds(), Data: c.Record.Data, Bytes: c.Record.Bytes,
		}
		if since := sinceOf(c); !since.IsZero() {
			states[i].Since, states[i].For = &since, max(0, now.Sub(since).Seconds())
		}
	}
	return states
}

func stateName(c dlock.Contender) string {
	if c.Holds {
		return "holds"
	}
	return "waits"
}

func modeOf(c dlock.Contender) string {
	if c.Units > 0 {
		return fmt.Sprintf("%d of %d", c.Units, c.OfUnits)
	}
	return c.Mode.String()
}

// sinceOf returns when the contender joined the queue, by the store's clock if
// known, else by the contender's.
func sinceOf(c dlock.Contender) time.Time {
	since := c.Created
	if since.IsZero() {
		since = c.Record.Since
	}
	if y := since.Year(); y < 1970 || y > 9999 { // unknown, or forged
		return time.Time{}
	}
	return since
}

// columns are the titles of a table. DATA follows if a contender has data.
var columns = []string{"STATE", "MODE", "HOST", "PID", "PROGRAM", "TOKEN", "SINCE", "FOR", "LEFT", "NODE"}

func table(contenders []dlock.Contender, now time.Time) string {
	columns := columns
	if slices.ContainsFunc(contenders, func(c dlock.Contender) bool { return c.Record.Data != "" }) {
		columns = append(slices.Clone(columns), "DATA")
	}
	rows := [][]string{columns}
	for _, c := range contenders {
		since := "-"
		if t := sinceOf(c); !t.IsZero() {
			since = moment(t, now)
		}
		rows = append(rows, []string{stateName(c), modeOf(c), short(c.Host, 20), number(int64(c.Record.PID)),
			short(c.Record.Program, 16), number(c.Token), since, age(c, now), left(c), cell(c.Node), short(c.Record.Data, 40)}[:len(columns)])
	}
	text := aligned(rows, 2)
	tooLong := func(line string) bool { return utf8.RuneCountInString(line) > 100 }
	if slices.ContainsFunc(strings.Split(text, "\n"), tooLong) {
		text = aligned(rows, 1)
	}
	return text
}

func number(n int64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

func age(c dlock.Contender, now time.Time) string {
	since := sinceOf(c)
	if since.IsZero() {
		return "-"
	}
	return period(now.Sub(since))
}

func left(c dlock.Contender) string {
	if c.SessionLeft <= 0 {
		return "-"
	}
	return period(c.SessionLeft)
}

func aligned(rows [][]string, gap int) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, gap, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush() // a Builder returns no error
	return b.String()
}

// moment formats a time by the clock of this machine: times of today without
// the date, all others without seconds.
func moment(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	switch {
	case t.Format(time.DateOnly) == now.Format(time.DateOnly):
		return t.Format(time.TimeOnly)
	case t.Year() == now.Year():
		return t.Format("Jan _2 15:04")
	}
	return t.Format("2006-01-02 15:04")
}
