package demo

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/recipes"
)

// The values of -fault.
const (
	faultPause = "pause"
	faultCut   = "cut"
	faultKill  = "kill"
)

// The initial stock, and how many items each of the two workers of a scene
// sells.
const (
	inStock     = 10
	holderSells = 1
	nextSells   = 4
)

// scene is the run with -fault, which shows why locks have tokens. A fault hits
// the holder after it has read the stock and before it writes it. Its session
// ends, the next worker gets the lock and writes, and then the holder's write
// arrives. The stock refuses that write, because its token is smaller than one
// that the stock has seen.
//
// The workers are goroutines of this process, or child processes if the fault
// is a paused or killed process. Both call ask to take part.
type scene struct {
	*journal
	fault  string
	beat   time.Duration // pause between events, so that the picture shows them apart
	strike func()        // begins the fault
	heal   func()        // ends the fault; may be called more than once

	begun   moment // the holder has the lock and has begun its work
	waiting moment // the next worker waits for the lock
	written moment // the next worker has written
	judged  moment // the late write has arrived
	over    moment // a worker has given up; some of the other moments may never come

	mu        sync.Mutex
	stock     int           // guarded by mu
	seen      int64         // guarded by mu; the greatest token that the stock has seen
	unchecked int           // guarded by mu; what the stock would be if it did not check tokens
	arrived   bool          // guarded by mu; whether the late write has arrived
	refused   bool          // guarded by mu; whether it was refused
	struck    time.Duration // guarded by mu; when the fault began
}

// beat is the pause between two events of a scene. It is not a multiple of the
// heartbeat interval, because runs in virtual time would not be deterministic
// if events coincided with heartbeats.
func (s *settings) beat() time.Duration { return s.Hold * 3 / 10 }

// moment is an event of the scene that goroutines wait for. Calling come
// announces it.
type moment struct {
	c    chan struct{}
	come func() // may be called more than once
}

func newMoment() moment {
	c := make(chan struct{})
	return moment{c, sync.OnceFunc(func() { close(c) })}
}

// await waits for m. It returns false if ctx or the scene ends first.
func (sc *scene) await(ctx context.Context, m moment) bool {
	select {
	case <-m.c:
		return true
	case <-sc.over.c:
	case <-ctx.Done():
	}
	return false
}

func newScene(s *settings, log *journal) *scene {
	return &scene{
		journal: log, fault: s.Fault, beat: s.beat(), stock: inStock, unchecked: inStock,
		begun: newMoment(), waiting: newMoment(), written: newMoment(), judged: newMoment(), over: newMoment(),
	}
}

// stage is the interface between a worker and its scene, which may be in
// another process.
type stage interface {
	reporter
	// ask sends a question to the scene and waits for the answer, which is not
	// OK if ctx ends first.
	ask(ctx context.Context, q question) answer
}

type question struct {
	Do      string
	Who     string
	Token   int64
	Value   int
	Late    bool     // whether this is the holder's write, which arrives late
	Attempt *attempt // of the holder
}

// What a worker can ask the scene to do: see question.Do.
const (
	askRead   = "read"
	askWrite  = "write"
	askFault  = "fault"  // hit the asking holder with the fault; answered when the holder may go on
	askArrive = "arrive" // wait until the late write may arrive at the stock
	askJudged = "judged" // wait until the late write has arrived at the stock
)

type answer struct {
	OK    bool
	Value int
	At    time.Duration // of the event
	Note  note          // for the picture, about the late write
}

// say prints an event. If the event is that the next worker waits, it also
// announces waiting.
func (sc *scene) say(who, verb, what string) time.Duration {
	at := sc.journal.say(who, verb, what)
	if verb == "waits" {
		sc.waiting.come()
	}
	return at
}

// finished records an attempt. It ends the scene if the worker gave up or
// failed, because the other worker would otherwise wait forever.
func (sc *scene) finished(t *attempt) {
	sc.journal.finished(t)
	if t.Outcome != served && !t.fell() {
		sc.over.come()
		sc.begun.come() // the next worker waits for this before it starts
	}
}

func (sc *scene) ask(ctx context.Context, q question) answer {
	switch q.Do {
	case askRead:
		return sc.read(q)
	case askWrite:
		return sc.write(q)
	case askFault:
		return sc.hit(ctx, q)
	case askArrive:
		ok := sc.await(ctx, sc.written)
		sc.heal()
		return answer{OK: ok}
	case askJudged:
		return answer{OK: sc.await(ctx, sc.judged)}
	}
	return answer{}
}

func (sc *scene) read(q question) answer {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return answer{OK: true, Value: sc.stock, At: sc.say(q.Who, "reads", fmt.Sprintf("%d in stock", sc.stock))}
}

// write stores a value, or refuses it if its token is smaller than one that the
// stock has seen. Like this method, a real resource must compare and store
// atomically.
func (sc *scene) write(q question) (a answer) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	a.OK = true
	sc.unchecked = q.Value
	refused := q.Token < sc.seen
	if refused {
		a.At = sc.say(q.Who, "REFUSED", fmt.Sprintf("writing %d with token %d: the stock has seen token %d", q.Value, q.Token, sc.seen))
	} else {
		sc.stock, sc.seen = q.Value, q.Token
		a.At = sc.say(q.Who, "writes", fmt.Sprintf("%d with token %d", q.Value, q.Token))
	}
	if q.Late {
		sc.arrived, sc.refused = true, refused
		sc.judged.come()
	} else {
		sc.written.come()
	}
	a.Note = note{a.At, "late write refused"}
	if !refused {
		a.Note.Text = "late write stored"
	}
	return a
}

// hit begins the fault as soon as the next worker waits for the lock, and then
// answers the holder. A cut-off holder gets the answer at once, a paused one
// when it wakes up, and a killed one never.
func (sc *scene) hit(ctx context.Context, q question) answer {
	sc.begun.come()
	if !sc.await(ctx, sc.waiting) || !pause(ctx, sc.beat, nil) {
		return answer{}
	}
	var at time.Duration
	switch sc.fault {
	case faultPause:
		at = sc.say(q.Who, "PAUSED", fmt.Sprintf("just before it writes %d", q.Value))
	case faultCut:
		at = sc.say(q.Who, "CUT OFF", fmt.Sprintf("from the store; its write of %d is delayed, too", q.Value))
	case faultKill:
		at = sc.say(q.Who, "KILLED", fmt.Sprintf("while its write of %d is delayed in the network", q.Value))
	}
	t := q.Attempt
	t.Ended = at
	sc.mu.Lock()
	sc.struck = at
	sc.mu.Unlock()
	sc.strike()
	if sc.fault == faultCut {
		return answer{OK: true, At: at}
	}
	ok := sc.await(ctx, sc.written)
	sc.heal()
	if sc.fault == faultKill {
		t.Outcome = killed
		if ok {
			q.Late = true
			t.Notes = append(t.Notes, sc.write(q).Note)
		}
		sc.finished(t)
	} else if ok {
		sc.say(q.Who, "wakes up", "and goes on where it was")
	}
	return answer{OK: ok, At: at}
}

// cast returns a worker of the scene, which is not connected yet. It is the
// holder if next is nil; otherwise it asks for the lock when next is closed.
func (s *settings) cast(name string, open opener, st stage, next <-chan struct{}) (w *worker, err error) {
	w = &worker{name: name, hold: s.Hold, log: st}
	trace := w.trace()
	if next != nil {
		w.plan = []intent{{mode: dlock.Exclusive, await: next, after: s.beat()}}
		w.work = func(ctx context.Context, t *attempt, h held) { w.sellAsNext(ctx, st, t, h) }
	} else {
		w.plan = []intent{{mode: dlock.Exclusive}}
		w.work = func(ctx context.Context, t *attempt, h held) { w.sellAsHolder(ctx, st, t, h, s.Fault == faultCut) }
		trace = &recipes.Trace{Queued: trace.Queued} // a paused process must not print that it waits
	}
	w.locker, err = open(w.name, trace)
	return w, err
}

// play runs the workers of a scene in this process.
func (all workers) play(ctx context.Context, s *settings, st stage) error {
	if err := all.connect(ctx, s.ConnectTimeout); err != nil {
		return err
	}
	if st.begin(ctx) {
		_ = all.each(func(w *worker) error { w.run(ctx, w.plan); return nil })
	}
	return nil
}

func (w *worker) sellAsHolder(ctx context.Context, st stage, t *attempt, h held, cut bool) {
	write := question{Who: t.label(), Token: t.Token, Late: true}
	write.Value = st.ask(ctx, question{Do: askRead, Who: t.label()}).Value - holderSells
	fault := write
	fault.Do, fault.Attempt = askFault, t
	hit := st.ask(ctx, fault)
	if !hit.OK {
		t.Outcome = interrupted
		return
	}
	t.Ended = hit.At
	if cut {
		t.Notes = append(t.Notes, note{hit.At, "cut off"})
	} else {
		t.Mark = "paused"
	}
	for at := w.log.now(); w.stillHeld(t, h, at) && cut; at = w.log.now() {
		pause(ctx, betweenTries, h.Lost())
		if ctx.Err() != nil {
			t.Outcome = interrupted
			return
		}
	}
	// A careful program stops here, but the write that it sent last may still
	// be in flight.
	if cut && !st.ask(ctx, question{Do: askArrive}).OK {
		return
	}
	write.Do = askWrite
	t.Notes = append(t.Notes, st.ask(ctx, write).Note)
}

func (w *worker) sellAsNext(ctx context.Context, st stage, t *attempt, h held) {
	write := question{Do: askWrite, Who: t.label(), Token: t.Token}
	read := question{Do: askRead, Who: t.label()}
	write.Value = st.ask(ctx, read).Value - nextSells
	pause(ctx, w.hold/2, h.Lost())
	st.ask(ctx, write)
	if !st.ask(ctx, question{Do: askJudged}).OK {
		t.Outcome = interrupted
		return
	}
	pause(ctx, w.hold/2, h.Lost())
	if left := st.ask(ctx, read).Value; left != write.Value {
		t.noteAnomaly("%s finds %d in stock, where it had left %d", t.label(), left, write.Value)
	}
}

// runScene runs the scene with workers in this process, or in child processes
// if s.Processes says so.
func runScene(ctx context.Context, s *settings, log *journal) (*scene, error) {
	sc := newScene(s, log)
	if s.Processes > 1 {
		g := &group{log: sc, scene: sc, opened: func() {}}
		sc.strike, sc.heal = g.strike, g.heal
		return sc, g.run(ctx, s)
	}
	open, cut, err := s.openThroughCut()
	if err != nil {
		return sc, err
	}
	defer cut.close()
	sc.strike, sc.heal = cut.begin, cut.end
	defer context.AfterFunc(ctx, cut.end)() // after an interrupt, the holder must reach the store to release the lock
	var all workers
	defer func() {
		cut.end()
		all.close()
	}()
	for i, next := range []<-chan struct{}{nil, sc.begun.c} {
		w, err := s.cast(fmt.Sprintf("%s-%d", s.Host, i+1), open, sc, next)
		if err != nil {
			return sc, err
		}
		all = append(all, w)
		open = s.open // the next worker has its own connection; only the holder is cut off
	}
	return sc, all.play(ctx, s, sc)
}

// judge adds a check to the verdict: the late write must have been refused.
func (sc *scene) judge(v *verdict) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	c := check{name: "late", fine: "the late write was refused, and no sale was lost"}
	if !sc.arrived {
		if !v.interrupted {
			v.errs = append(v.errs, "the scene ended early: the next worker did not get the lock; is -timeout shorter than the session timeout of the store?")
		}
		return
	}
	if !sc.refused {
		c.faults = append(c.faults, fmt.Sprintf("the late write was not refused: %d are in stock", sc.stock))
	}
	v.checks = append(v.checks, c)
	if len(v.held) == 2 {
		v.note = sc.story(v.held[0], v.held[1])
	}
}

// story explains in plain words what happened in the scene. sc.mu must be held.
func (sc *scene) story(holder, next *attempt) string {
	what := map[string]string{
		faultPause: "its process was paused.",
		faultCut:   "it was cut off\n     from the store, and its write was delayed in the network.",
		faultKill:  "its process was\n     killed, and its write was delayed in the network.",
	}[sc.fault]
	end := fmt.Sprintf("The stock\n     had seen token %d, so it refused the write. There are %d left, as there\n     should be.", next.Token, sc.stock)
	if !sc.refused {
		end = fmt.Sprintf("The stock\n     did not refuse it. Now it says that %d are left.", sc.stock)
	}
	return fmt.Sprintf(`
What happened

  1. %[1]s took the lock and got token %[2]d. It read %[3]d in stock, sold %[4]d,
     and was about to write %[5]d. Then %[6]s
  2. The store had no sign of life from it and ended its session. After %[7]s
     the next in the queue, %[8]s, got the lock and token %[9]d. It read %[3]d,
     sold %[10]d, and wrote %[11]d.
  3. Then the write of %[1]s arrived, with token %[2]d. %[12]s

Without tokens, the stock would now say %[13]d: the sale of %[8]s would be lost.
No lock can stop a late write. The token lets the stock refuse it.
`, holder.Worker, holder.Token, inStock, holderSells, inStock-holderSells, what, seconds(next.Granted-sc.struck),
		next.Worker, next.Token, nextSells, inStock-nextSells, end, sc.unchecked)
}

func introduceScene(w io.Writer, s *settings) {
	how := map[string]string{
		faultPause: "its process is stopped for a while",
		faultCut:   "it is cut off from the store",
		faultKill:  "its process is killed",
	}[s.Fault]
	if s.Driver == inMemory && s.Fault == faultPause {
		how = "it sleeps, and the store hears nothing from it"
	}
	fmt.Fprintf(w, `Two workers sell from a stock of %d. Each takes the lock %s, reads the stock, and
writes what is left. Before the first one writes,
%s.
The stock remembers the greatest token that it has seen, and refuses smaller ones.
Store: %s.
`, inStock, clean(s.Lock), how, s.Driver)
}
