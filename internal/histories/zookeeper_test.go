package histories

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/leakcheck"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/zktest"
	_ "github.com/dlock-go/dlock/zkdriver"
)

func TestMain(m *testing.M) { os.Exit(leakcheck.After(zktest.Main(m))) }

var batches = flag.Int("batches", 2, "how many times four histories are made on one ZooKeeper server")

const (
	sessionTimeout = 2 * time.Second
	zkClients      = 4
	zkFor          = 6 * time.Second
)

// zkHistory is a history on ZooKeeper. Each client reaches each server through
// a proxy of its own, so that a fault can hit a single client.
type zkHistory struct {
	testing.TB
	*recorder
	servers []*zktest.Server
	root    string
	raw     *zk.Conn
	routes  []route
	slots   []*slot
	actors  []*actor
	pace    time.Duration // longest time between faults
	seed    uint64
	rand    *rand.Rand
	heals   sync.WaitGroup
	stop    chan struct{}
	playing sync.WaitGroup
	wrong   complaints
}

// newZKHistory opens clients whose locks are below the path root, and closes
// them when the test ends.
func newZKHistory(t testing.TB, seed uint64, pace time.Duration, root string, servers ...*zktest.Server) *zkHistory {
	t.Helper()
	w := &zkHistory{
		TB: t, recorder: new(recorder), servers: servers, root: root, stop: make(chan struct{}), pace: pace,
		raw: zktest.Dial(t, time.Minute, addrs(servers)...), seed: seed, rand: rand.New(rand.NewPCG(seed, 1)),
	}
	for i := range zkClients {
		w.join(i)
		// On a busy machine a session may expire at any time, without any
		// fault.
		w.cause(cause{what: "time passes on a busy machine", slot: i, told: true}, done(func() {}))
	}
	return w
}

func addrs(servers []*zktest.Server) (all []string) {
	for _, s := range servers {
		all = append(all, s.Addr())
	}
	return all
}

func (w *zkHistory) join(i int) {
	var to route
	var hosts []string
	for _, s := range w.servers {
		p := zktest.NewProxy(w, s.Addr())
		to, hosts = append(to, hop{p, s}), append(hosts, p.Addr())
	}
	w.routes = append(w.routes, to)
	dsn := fmt.Sprintf("zk://%s%s?session_timeout=%v", strings.Join(hosts, ","), w.root, sessionTimeout)
	s := newSeat(i, func() *dlock.Client {
		c, err := dlock.Open("zk", dsn, dlock.WithHostname(fmt.Sprint("web", i)), quiet())
		if err != nil {
			panic(err) // Open does no I/O, so the data source name must be wrong
		}
		return c
	})
	w.Cleanup(func() { _ = s.client().locks.Close() })
	w.slots = append(w.slots, s)
	for j, queue := range queues {
		id := 1 + i + zkClients*j
		w.actors = append(w.actors, &actor{
			recorder: w.recorder, id: id, slot: s, queues: []string{queue}, wrong: &w.wrong, stop: w.stop,
			nasty: w.nasty(i, to), rand: rand.New(rand.NewPCG(w.seed, uint64(99+id))), rounds: 1 << 30, unit: 25 * time.Millisecond, long: 2 * sessionTimeout,
		})
	}
}

// nasty returns functions that inject faults into client i at the moments when
// they do the most harm. write makes the client's next request to create or
// delete a node fail. hold sometimes cuts the client off until another client
// is granted its lock.
func (w *zkHistory) nasty(i int, to route) nasty {
	draw := rand.New(rand.NewPCG(w.seed, uint64(200+i)))
	var mu sync.Mutex
	chance := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return draw.IntN(2) == 0
	}
	return nasty{
		write: func() {
			if chance() {
				w.cause(cause{what: "request lost", slot: i, told: true}, done(func() { to.now().LoseRequest(writes) }))
			} else {
				w.cause(cause{what: "reply lost", slot: i, told: true}, done(func() { to.now().LoseReply(writes) }))
			}
		},
		hold: func() {
			if chance() {
				w.sever(cause{what: "cut off from all, in both directions", slot: i, told: true}, to, (*zktest.Proxy).Cut, 2*sessionTimeout)
			}
		},
	}
}

func (w *zkHistory) start() {
	for _, a := range w.actors {
		w.playing.Go(a.play)
	}
}

// end waits for all actors and then checks that the locks still work: the queues
// must become empty, and each actor must acquire the locks with TryLock, TryRLock
// and TryAcquire.
func (w *zkHistory) end() {
	close(w.stop)
	w.playing.Wait()
	w.heals.Wait()
	for _, to := range w.routes {
		to.heal()
	}
	for _, a := range w.actors {
		a.nasty = nasty{}
	}
	for _, queue := range queues {
		w.deserted(queue)
		tryTogether(w.actors, queue)
		w.deserted(queue)
		for _, a := range w.actors {
			a.tryInTurn(queue)
		}
	}
}

func (w *zkHistory) deserted(queue string) {
	for until := time.Now().Add(bound); len(w.nodes(queue)) > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			w.wrong.add("all actors are done, but %v is left", w.nodes(queue))
			break
		}
	}
	w.settled(queue)
}

func (w *zkHistory) play(stop <-chan struct{}) {
	for {
		t := time.NewTimer(time.Duration(w.rand.Int64N(int64(w.pace))))
		select {
		case <-t.C:
			w.fault()
		case <-stop:
			t.Stop()
			return
		}
	}
}

var writes = zktest.Op(zktest.OpCreate, zktest.OpDelete, zktest.OpMulti)

// fault injects a random fault. It ignores an error of an operator's request,
// because the node may already be gone.
func (w *zkHistory) fault() {
	i := w.target(w.rand, len(w.routes))
	to := w.routes[i]
	of := func(what string) cause { return cause{what: what, slot: i, told: true} }
	queue := queues[w.rand.IntN(len(queues))]
	switch n := w.rand.IntN(40); {
	case n == 0:
		w.cause(cause{what: "queue removed", slot: -1, queue: queue}, func() bool { return w.removeQueue(queue) })
	case n < 3:
		w.removeNode(queue)
	case n < 5:
		w.cause(cause{what: "ended by force", slot: i}, func() bool { return to.expire(w) })
	case n < 9:
		w.cut(of, to)
	case n < 18:
		w.cause(of("connection dropped"), done(to.drop))
	case n < 26:
		w.cause(of("request lost"), done(func() { to.now().LoseRequest(writes) }))
	case n < 35:
		w.cause(of("reply lost"), done(func() { to.now().LoseReply(writes) }))
	case n < 37:
		w.cause(of("slow"), done(func() { to.delay(time.Duration(w.rand.IntN(15)) * time.Millisecond) }))
	case n == 37:
		_ = w.slots[i].replace(w.recorder) // fails if the store cannot be reached
	}
}

// cut disconnects a client for a while, sometimes for longer than the session
// timeout: from one server or all of them, in one direction or both.
func (w *zkHistory) cut(of func(string) cause, to route) {
	d := time.Duration(w.rand.Int64N(int64(sessionTimeout)))
	if w.rand.IntN(2) == 0 {
		d += sessionTimeout
	}
	which, whence := to, "all"
	if w.rand.IntN(2) == 0 {
		which, whence = route{to.now()}, "its server"
	}
	cut, how := (*zktest.Proxy).Cut, "in both directions"
	switch w.rand.IntN(3) {
	case 1:
		cut, how = func(p *zktest.Proxy) { p.CutOneWay(testenv.ToServer) }, "towards it"
	case 2:
		cut, how = func(p *zktest.Proxy) { p.CutOneWay(testenv.ToClient) }, "from it"
	}
	w.sever(of(fmt.Sprintf("cut off from %s, %s", whence, how)), which, cut, d)
}

// sever calls cut for the proxies of a route and heals them after d. It records
// this as the cause c.
func (w *zkHistory) sever(c cause, which route, cut func(*zktest.Proxy), d time.Duration) {
	w.cause(c, done(func() {
		for _, h := range which {
			cut(h.Proxy)
		}
		w.heals.Go(func() {
			time.Sleep(d)
			which.heal()
		})
	}))
}

func (w *zkHistory) nodes(queue string) []string {
	names, _, err := w.raw.Children(w.root + "/" + queue)
	if err != nil {
		return nil
	}
	sequence := func(name string) string { return name[max(0, len(name)-10):] }
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(sequence(a), sequence(b)) })
	return names
}

// removeNode removes the first or second node of a queue, as an operator may
// do, so that a holder loses the lock or a waiter its place.
func (w *zkHistory) removeNode(queue string) {
	nodes := w.nodes(queue)
	if len(nodes) == 0 {
		return
	}
	name := nodes[w.rand.IntN(min(2, len(nodes)))]
	w.cause(cause{what: "node removed", slot: -1, queue: queue, node: nodeOf(name)}, func() bool {
		return w.operator(w.raw.Delete(w.root+"/"+queue+"/"+name, -1))
	})
}

func (w *zkHistory) removeQueue(queue string) bool {
	var ops []any
	for _, name := range w.nodes(queue) {
		ops = append(ops, &zk.DeleteRequest{Path: w.root + "/" + queue + "/" + name, Version: -1})
	}
	_, err := w.raw.Multi(append(ops, &zk.DeleteRequest{Path: w.root + "/" + queue, Version: -1})...)
	return w.operator(err)
}

// operator waits until an operator's request, which returned err, can no longer
// take effect, and reports whether that is certain. If the reply was lost,
// operator writes in the same session until the store answers, because no later
// write can overtake the lost one.
func (w *zkHistory) operator(err error) bool {
	over := func() bool {
		return err == nil || errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNotEmpty)
	}
	for until := time.Now().Add(bound); !over() && time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		err = w.raw.Delete(w.root+"/no-such-node", -1)
	}
	return over()
}

func TestHistoriesOnZooKeeperAreLinearizable(t *testing.T) {
	t.Parallel()
	const together = 4
	zktest.Require(t)
	seed := rand.Uint64()
	var sum figures
	began := time.Now()
	for range *batches {
		t.Run("batch", func(t *testing.T) {
			server := zktest.Shared(t)
			var histories []*zkHistory
			for range together {
				histories = append(histories, newZKHistory(t, seed, 150*time.Millisecond, server.Chroot(t), server))
				seed++
			}
			play(t, "zookeeper", histories, func() { time.Sleep(zkFor) }, &sum)
		})
	}
	t.Logf("%v, %v", &sum, time.Since(began).Round(time.Millisecond))
	require.NotZero(t, sum.counts["lost"])
	require.NotZero(t, sum.counts["re-entries"])
	require.NotZero(t, sum.counts["downgrades"])
	require.NotZero(t, sum.counts["grants of units"])
}

// play runs several histories on the same servers and checks them. Meanwhile it
// calls meanwhile, which makes servers fail.
func play(t *testing.T, of string, histories []*zkHistory, meanwhile func(), sum *figures) {
	stop := make(chan struct{})
	var playing sync.WaitGroup
	for _, w := range histories {
		w.start()
		playing.Go(func() { w.play(stop) })
	}
	meanwhile()
	close(stop)
	playing.Wait()
	for _, w := range histories {
		playing.Go(w.end)
	}
	playing.Wait()
	for _, w := range histories {
		sum.add(w.recorder, check(t, of, fmt.Sprint("seed ", w.seed), w.recorder, w.wrong.all))
	}
}
