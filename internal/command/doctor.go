package command

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes"
)

const doctorHelp = `Usage: dlock doctor [flags]

Checks whether the store suits locks: connects, takes and releases a lock, and
looks at the session timeout, the clocks, and what the driver knows about the
server, such as its settings. Each line is ok, or says what to do. The exit
status is 0 if there is nothing to do, 1 if there is, and 2 if the command line
is invalid.

It takes a lock with a name of its own, and touches no other lock. If the
database has no tables for locks yet, it makes them.

Flags:
`

func doctor(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	t := newTool("doctor", doctorHelp, "no arguments, only flags", args, stdout, stderr)
	t.flags.BoolVar(&t.json, "json", false, "print each finding as a JSON object on a line of its own")
	var e examination
	_, client, status := t.open(0, 0, dlock.WithTrace(&recipes.Trace{Connected: func(_ context.Context, info recipes.ConnectedInfo) {
		e.session.Store(&info)
	}}))
	if e.client = client; client == nil {
		return status
	}
	defer client.Close()
	e.report = func(f driver.Finding) {
		f.Text, f.Advice = t.store.hide(f.Text, args), t.store.hide(f.Advice, args)
		if f.Level == driver.Warning || f.Level == driver.Problem {
			status = failedStatus
		}
		if t.json {
			_ = json.NewEncoder(stdout).Encode(f) // output.status reports write errors
			return
		}
		fmt.Fprint(stdout, finding(f))
	}
	// Discard the drivers' log, because its warnings are among the findings.
	defer log.SetOutput(log.Writer())
	log.SetOutput(io.Discard)
	e.run(ctx)
	if ctx.Err() != nil {
		return t.failed(ctx.Err())
	}
	return status
}

type examination struct {
	client  *dlock.Client
	session atomic.Pointer[recipes.ConnectedInfo] // the latest session
	report  func(driver.Finding)
}

// run uses the store as an application does, then lets the driver check it.
func (e *examination) run(ctx context.Context) {
	err := e.client.Ping(ctx)
	if err == nil {
		e.describe(e.session.Load())
		e.lock(ctx)
	}
	found, failed := e.client.Check(ctx)
	if ctx.Err() != nil {
		return
	}
	explained := slices.ContainsFunc(found, func(f driver.Finding) bool { return f.Level == driver.Problem })
	if err != nil && !explained {
		e.report(driver.Finding{Level: driver.Problem, Text: err.Error(), Advice: adviceOn(err, "correct what the error names: the address, the user, the password or the certificates")})
	}
	for _, f := range found {
		e.report(f)
	}
	switch {
	case errors.Is(failed, errors.ErrUnsupported):
		e.report(driver.Finding{Level: driver.Unknown, Text: "this driver does not check its server", Advice: "compare the server with the documentation of the driver"})
	case failed != nil && err == nil:
		e.report(driver.Finding{Level: driver.Unknown, Text: failed.Error(), Advice: "try again when the store is less busy"})
	}
}

// adviceOn returns what to do about a store's error. The argument refused is
// the advice if the store was reached.
func adviceOn(err error, refused string) string {
	switch {
	case errors.Is(err, driver.ErrSessionEnded):
		return "make sure that all hosts of the data source name belong to one store, and that nobody ends its sessions"
	case errors.Is(err, driver.ErrUnavailable):
		return "make sure that the address is that of the store, and that it is healthy and accepts clients"
	}
	return refused
}

// shortTimeout is the session timeout below which a process may lose its locks
// because of pauses that are normal for a process or a disk.
const shortTimeout = 4 * time.Second

// describe reports the session, and warns if the session timeout is short.
func (e *examination) describe(info *recipes.ConnectedInfo) {
	s := info.Session
	text := fmt.Sprintf("began session %s at %s in %v", cmp.Or(s.ID, "without an id"), cmp.Or(s.Server, "the store"), info.Took.Round(100*time.Microsecond))
	if s.Grace > 0 {
		text += fmt.Sprintf(", after a grace of %v, because the store is new or has lost data", s.Grace.Round(100*time.Millisecond))
	}
	e.report(driver.Finding{Text: text})
	if s.Timeout == 0 {
		e.report(driver.Finding{Level: driver.Unknown, Text: "the driver does not tell the session timeout", Advice: "see the documentation of the driver"})
		return
	}
	margin := cmp.Or(s.Margin, s.Timeout/4)
	f := driver.Finding{Text: fmt.Sprintf("the session timeout is %v: a holder that is cut off learns of its loss at most %v later, and %v before the store gives the lock away",
		s.Timeout, s.Timeout-margin, margin)}
	if s.Timeout < shortTimeout {
		f.Level = driver.Warning
		f.Advice = fmt.Sprintf("set session_timeout=10s: with less than %v, a pause of the process or a busy disk may cost locks", shortTimeout)
	}
	e.report(f)
}

// lock reports whether taking and releasing a lock works, and compares clocks.
func (e *examination) lock(ctx context.Context) {
	m := e.client.RWMutex("dlock-doctor-"+strings.ToLower(rand.Text()[:12]), dlock.WithTimeout(15*time.Second))
	before := time.Now()
	var after, created time.Time
	err := m.WithLock(ctx, func(ctx context.Context, l *dlock.Lock) error {
		after = time.Now()
		queue, err := m.Queue(ctx)
		for _, c := range queue {
			if c.Node == l.Node() {
				created = c.Created
			}
		}
		if err != nil {
			return err
		}
		return l.Downgrade(ctx)
	})
	switch {
	case ctx.Err() != nil:
	case err != nil:
		e.report(driver.Finding{Level: driver.Problem, Text: err.Error(), Advice: adviceOn(err, "give the user the rights that the documentation of the driver lists")})
	default:
		e.report(driver.Finding{Text: fmt.Sprintf("took and released a lock in %v", time.Since(before).Round(100*time.Microsecond))})
		if !created.IsZero() {
			e.report(clock(created, before.Truncate(time.Millisecond), after))
		}
	}
}

// largeDifference is the difference between two clocks above which one of them
// must be set wrong, because synchronized clocks never differ that much.
const largeDifference = time.Minute

// clock compares the time at which the store made a node, by its own clock,
// with this machine's readings before and after.
func clock(created, before, after time.Time) driver.Finding {
	ahead, where := max(created.Sub(after), 0), "ahead of"
	if behind := before.Sub(created); behind > 0 {
		ahead, where = behind, "behind"
	}
	if ahead <= largeDifference {
		return driver.Finding{Text: fmt.Sprintf("the store's clock agrees with this machine's to within %v", max(ahead, after.Sub(before)).Round(time.Millisecond))}
	}
	return driver.Finding{
		Level: driver.Warning,
		Text:  fmt.Sprintf("the store's clock is %v %s this machine's", ahead.Round(time.Second), where),
		Advice: "synchronize both machines by NTP. No lock depends on the difference, but the times that queues show do. " +
			"Do not set the server's clock forward in one step while locks are held",
	}
}

func finding(f driver.Finding) string {
	var b strings.Builder
	first, rest, _ := strings.Cut(strings.TrimSpace(f.Text), "\n")
	fmt.Fprintf(&b, "%-8v %s\n", f.Level, printable(first))
	indented(&b, rest, "         ")
	indented(&b, f.Advice, "         -> ")
	return b.String()
}

func indented(b *strings.Builder, text, prefix string) {
	for line := range strings.Lines(text) {
		fmt.Fprintf(b, "%s%s\n", prefix, printable(strings.TrimRight(line, "\n")))
		prefix = strings.Repeat(" ", len(prefix))
	}
}
