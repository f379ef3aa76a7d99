package diagnose

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// leastLimit and mostLimit bound the time limit of a request. The limit is the
// session timeout if that lies between the two.
const (
	leastLimit = time.Second
	mostLimit  = 10 * time.Second
)

// Run implements [driver.Diagnoser] for a store.
func Run(ctx context.Context, st Store, report func(driver.Finding)) error {
	r := &run{Store: st, found: make(map[driver.Check]bool)}
	r.limit = min(max(cmp.Or(st.Timeout, mostLimit), leastLimit), mostLimit)
	var mu sync.Mutex // serializes report, because hosts are checked concurrently
	r.report = func(f driver.Finding) {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() == nil { // otherwise drop it: the end of ctx may have caused it
			r.found[f.Check] = true
			report(f)
		}
	}
	if r.network(ctx) {
		r.session(ctx)
	}
	return ctx.Err()
}

type run struct {
	Store
	limit  time.Duration // of each request
	report func(driver.Finding)
	found  map[driver.Check]bool // the checks with findings
}

func (r *run) ok(check driver.Check, format string, args ...any) {
	r.report(driver.Finding{Check: check, Text: fmt.Sprintf(format, args...)})
}

// session makes the checks that need a session.
func (r *run) session(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, r.limit+2*r.Grace)
	defer cancel()
	s, err := r.Connector.Connect(limited)
	if err != nil {
		r.failed(driver.CheckLogin, "", err)
		return
	}
	defer r.close(s)
	info := driver.Inspect(s).Describe()
	r.ok(driver.CheckLogin, "began session %s at %s%s", cmp.Or(info.ID, "without an id"), cmp.Or(info.Server, r.Local, "the store"), generation(info))
	made, ok := r.lock(ctx, s)
	if !ok {
		return
	}
	r.timeout(info.Timeout)
	r.outage(s, info.Timeout)
	r.clock(made)
	if r.Inspect != nil {
		limited, cancel := context.WithTimeout(ctx, r.limit)
		defer cancel()
		r.Inspect(limited, s, r.report)
	}
	for _, check := range []driver.Check{driver.CheckSettings, driver.CheckSequences} {
		if !r.found[check] {
			r.report(driver.Finding{Check: check, Level: driver.Unknown, Text: "this driver does not check them",
				Advice: "compare the server with the package documentation of the driver"})
		}
	}
}

func generation(info driver.SessionInfo) string {
	switch {
	case info.Generation == "":
		return ""
	case info.Grace > 0:
		return fmt.Sprintf(", after a grace of %v, because the store is new or has lost data; generation %s",
			info.Grace.Round(100*time.Millisecond), info.Generation)
	}
	return ", generation " + info.Generation
}

func (r *run) close(s driver.Session) {
	if err := s.Close(); err != nil {
		r.report(driver.Finding{Check: driver.CheckLogin, Level: driver.Warning, Text: "the session did not end: " + err.Error(),
			Advice: "wait for one session timeout, after which the store ends it"})
	}
}

// failed reports an error that makes further checks impossible.
func (r *run) failed(during driver.Check, what string, err error) {
	check, advice := during, ""
	if r.Explain != nil {
		if c, a := r.Explain(err); c != "" {
			check, advice = c, a
		}
	}
	switch refused := tlsAdvice(err); {
	case advice != "":
	case refused != "":
		check, advice = driver.CheckTLS, refused
	case errors.Is(err, driver.ErrSessionEnded):
		check, advice = driver.CheckLogin, "make sure that all hosts of the data source name belong to one store, and that nobody ends its sessions"
	case check == driver.CheckRights:
		advice = "give the user the rights that the package documentation of the driver lists"
	case errors.Is(err, driver.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		advice = "check that the server at this address is the store, is healthy and accepts clients; then try again"
	default:
		advice = "check the user and the password of the data source name"
	}
	if all := driver.Checks(); during == driver.CheckLogin && slices.Index(all, check) > slices.Index(all, during) {
		r.ok(driver.CheckLogin, "the store answers, but begins no session")
	}
	r.report(driver.Finding{Check: check, Level: driver.Problem, Text: what + err.Error(), Advice: advice})
}

// made holds the creation time of a node by the store's clock, and readings of
// this machine's clock before and after, for a comparison of the clocks.
type made struct {
	before, after time.Time
	at            time.Time // by the store's clock; zero if unknown
}

// lock takes and releases a lock as a client does, in a queue of its own. It
// reports the first request that fails.
func (r *run) lock(ctx context.Context, s driver.Session) (m made, ok bool) {
	queue := "dlock-doctor-" + strings.ToLower(rand.Text()[:12])
	var p driver.Place
	steps := []struct {
		what string
		do   func(ctx context.Context) error
	}{
		{"create a node", func(ctx context.Context) error {
			m.before = time.Now()
			j, err := s.Create(ctx, queue, driver.NodeSpec{Prefix: "doctor-W-", Data: []byte(queue)})
			p, m.after = j.Place, time.Now()
			return err
		}},
		{"list the queue", func(ctx context.Context) error {
			nodes, err := s.List(ctx, queue)
			if err == nil && !slices.Contains(nodes, p.Node) {
				err = fmt.Errorf("the queue %q has %v, and lacks the node %v that was just made", queue, nodes, p.Node)
			}
			return err
		}},
		{"watch the node", func(ctx context.Context) error {
			w, err := s.Watch(ctx, queue, p)
			w.Stop()
			return err
		}},
		{"read the node", func(ctx context.Context) error {
			info, err := driver.Inspect(s).Read(ctx, queue, p.Name)
			m.at = info.Created
			return supported(err)
		}},
		{"downgrade the lock", func(ctx context.Context) error {
			q, err := s.Replace(ctx, queue, p, "doctor-R-")
			if err == nil {
				p = q
			}
			return err
		}},
		{"release the lock", func(ctx context.Context) error { return s.Delete(ctx, queue, p, driver.Released) }},
	}
	for _, step := range steps {
		limited, cancel := context.WithTimeout(ctx, r.limit)
		err := step.do(limited)
		cancel()
		if err != nil {
			r.failed(driver.CheckRights, step.what+": ", err)
			_ = r.remove(ctx, s, queue, p)
			return m, false
		}
	}
	if err := r.remove(ctx, s, queue, driver.Place{}); err != nil {
		r.failed(driver.CheckRights, fmt.Sprintf("remove the empty queue %q: ", queue), err)
		return m, false
	}
	r.ok(driver.CheckRights, "took and released a lock, in %v", time.Since(m.before).Round(100*time.Microsecond))
	return m, true
}

func supported(err error) error {
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

// remove removes the node, if any, and the queue, even if ctx has ended.
func (r *run) remove(ctx context.Context, s driver.Session, queue string, p driver.Place) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(r.limit, 2*time.Second))
	defer cancel()
	if p.Name != "" {
		err = s.Delete(ctx, queue, p, driver.Changed)
	}
	if r.Remove != nil {
		err = cmp.Or(r.Remove(ctx, s, queue), err)
	}
	return err
}

// shortTimeout is the session timeout below which clients lose locks by pauses
// that are normal for a process or a disk.
const shortTimeout = 4 * time.Second

func (r *run) timeout(granted time.Duration) {
	f := driver.Finding{Check: driver.CheckTimeout, Text: fmt.Sprintf("%v granted", granted)}
	switch {
	case granted == 0:
		f.Level, f.Text = driver.Unknown, "the driver does not say which session timeout the store has granted"
	case r.Timeout > 0 && (granted-r.Timeout).Abs() >= time.Millisecond:
		f.Level = driver.Warning
		f.Text = fmt.Sprintf("%v granted, although the client asks for %v", granted, r.Timeout)
		f.Advice = "set the session_timeout of the data source name to a value that the server grants, or change the server's limits"
	case granted < shortTimeout:
		f.Level = driver.Warning
		f.Advice = "set the session_timeout of the data source name to 10s: with less than " + shortTimeout.String() +
			", a pause of the process or a busy disk may cost locks"
	}
	r.report(f)
}

func (r *run) outage(s driver.Session, granted time.Duration) {
	const then = ", after that it learns that they are lost"
	switch {
	case granted == 0:
		r.report(driver.Finding{Check: driver.CheckOutage, Level: driver.Unknown, Text: "this depends on the session timeout"})
	case r.Outage != nil:
		kept, survived := r.Outage(s)
		f := driver.Finding{Check: driver.CheckOutage, Text: fmt.Sprintf("a holder that is cut off keeps its locks for at least %v%s; they survive every outage of up to %v",
			kept.Round(10*time.Millisecond), then, survived.Round(10*time.Millisecond))}
		if survived <= 0 {
			f.Level = driver.Warning
			f.Text = "a short outage at the wrong moment loses locks, because answers of the server take long compared with the session timeout"
			f.Advice = "set a longer session_timeout, or use a server that is nearer"
		}
		r.report(f)
	default:
		// The lease ends three quarters of the session timeout after the latest
		// heartbeat, and heartbeats are sent every eighth of it.
		r.ok(driver.CheckOutage, "a holder that is cut off keeps its locks for %v to %v%s", granted*5/8, granted*3/4, then)
	}
}

// largeDifference is the difference between two clocks above which one of them
// must be set wrong. Inaccurate synchronization does not explain it.
const largeDifference = time.Minute

func (r *run) clock(m made) {
	if m.at.IsZero() {
		if r.NoClock != "" {
			r.ok(driver.CheckClock, "%s", r.NoClock)
			return
		}
		r.report(driver.Finding{Check: driver.CheckClock, Level: driver.Unknown, Text: "the driver does not show the store's clock"})
		return
	}
	var ahead time.Duration
	if m.at.After(m.after) {
		ahead = m.at.Sub(m.after)
	} else if before := m.before.Truncate(time.Millisecond); m.at.Before(before) {
		ahead = m.at.Sub(before)
	}
	f := driver.Finding{Check: driver.CheckClock}
	switch d := ahead.Abs().Round(time.Millisecond); {
	case d == 0:
		f.Text = fmt.Sprintf("the store's clock agrees with this machine's to within %v", max(m.after.Sub(m.before), time.Millisecond).Round(time.Millisecond))
	case ahead > 0:
		f.Text = fmt.Sprintf("the store's clock is %v ahead of this machine's", d)
	default:
		f.Text = fmt.Sprintf("the store's clock is %v behind this machine's", d)
	}
	if ahead.Abs() > largeDifference {
		f.Level = driver.Warning
		f.Advice = "synchronize both machines by NTP. No lock depends on the difference, but the times that queues show do. " +
			"Do not set the server's clock forward in one step while locks are held"
	}
	r.report(f)
}
