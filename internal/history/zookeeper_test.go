package history

import (
	"cmp"
	"errors"
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
	"github.com/dlock-go/dlock/internal/zktest"
	_ "github.com/dlock-go/dlock/zkdriver"
)

func TestMain(m *testing.M) { os.Exit(zktest.Main(m)) }

const (
	sessionTimeout = 2 * time.Second
	zkClients      = 4
	zkFor          = 4 * time.Second // how long faults are played in one history
)

// world is a queue on the shared server, with clients that go through proxies of their own.
type world struct {
	testing.TB
	*recorder
	server  *zktest.Server
	root    string
	raw     *zk.Conn
	proxies []*zktest.Proxy
	clients []*dlock.Client
	seed    uint64
	rand    *rand.Rand
	heals   sync.WaitGroup
	wrong   complaints
}

func newZooKeeper(t testing.TB, seed uint64) *world {
	t.Helper()
	server := zktest.Shared(t)
	w := &world{
		TB: t, recorder: new(recorder), server: server, root: server.Chroot(t),
		raw: zktest.Dial(t, time.Minute, server.Addr()), seed: seed, rand: rand.New(rand.NewPCG(seed, 1)),
	}
	for i := range zkClients {
		w.client(i)
		w.cause(cause{what: "time passes on a busy machine", client: i, told: true}, func() {}) // explains a session that ends by itself
	}
	return w
}

// client opens a client.
func (w *world) client(i int) {
	w.Helper()
	p := zktest.NewProxy(w, w.server.Addr())
	w.proxies = append(w.proxies, p)
	c, err := dlock.Open("zk", fmt.Sprintf("zk://%s%s?session_timeout=%v", p.Addr(), w.root, sessionTimeout), dlock.WithHostname(fmt.Sprint("web", i)))
	require.NoError(w, err)
	w.Cleanup(func() { _ = c.Close() })
	w.clients = append(w.clients, c)
}

// history makes one history: everybody takes and gives back locks for as long as faults are played.
func (w *world) history() {
	var playing sync.WaitGroup
	stop := make(chan struct{})
	for i, c := range w.clients {
		a := &actor{
			recorder: w.recorder, id: i, client: i, locks: c, queues: []string{"q"}, wrong: &w.wrong, stop: stop,
			rand: rand.New(rand.NewPCG(w.seed, uint64(100+i))), rounds: 1000, unit: 25 * time.Millisecond,
		}
		playing.Go(a.play)
	}
	for end := time.Now().Add(zkFor); time.Now().Before(end); {
		time.Sleep(time.Duration(w.rand.Int64N(int64(150 * time.Millisecond))))
		w.fault()
	}
	close(stop)
	w.heals.Wait()
	playing.Wait()
}

var writes = zktest.Op(zktest.OpCreate, zktest.OpDelete, zktest.OpMulti)

// fault plays one fault. Errors of an operator's are no trouble: he came too late.
func (w *world) fault() {
	i := w.rand.IntN(len(w.proxies))
	p := w.proxies[i]
	of := func(what string) cause { return cause{what: what, client: i, told: true} }
	switch n := w.rand.IntN(30); {
	case n == 0:
		w.cause(cause{what: "queue removed", client: -1}, w.removeQueue)
	case n < 4:
		w.removeNode()
	case n < 6:
		w.cause(cause{what: "ended by force", client: i}, func() { w.expire(p) })
	case n < 8:
		w.cut(of("cut off"), p)
	case n < 14:
		w.cause(of("connection dropped"), p.DropConnections)
	case n < 20:
		w.cause(of("request lost"), func() { p.LoseRequest(writes) })
	case n < 28:
		w.cause(of("reply lost"), func() { p.LoseReply(writes) })
	default:
		w.cause(of("slow"), func() { p.SetDelay(time.Duration(w.rand.IntN(15)) * time.Millisecond) })
	}
}

// cut cuts a client off for a while, perhaps for longer than its session lives.
func (w *world) cut(c cause, p *zktest.Proxy) {
	d := time.Duration(w.rand.Int64N(int64(3 * sessionTimeout / 2)))
	w.cause(c, func() {
		p.Cut()
		w.heals.Go(func() {
			time.Sleep(d)
			p.Heal()
		})
	})
}

// expire ends a client's session on the server. The client is kept out meanwhile: it would take
// the session back from the connection that is about to end it.
func (w *world) expire(p *zktest.Proxy) {
	sessions := p.Sessions()
	if len(sessions) == 0 || sessions[len(sessions)-1].ID == 0 {
		return
	}
	last := sessions[len(sessions)-1]
	p.Refuse()
	defer p.Heal()
	if err := zktest.Expire(w.server.Addr(), last.ID, last.Passwd); err != nil {
		w.Logf("expire: %v", err)
	}
}

// nodes returns the contenders, oldest first.
func (w *world) nodes() []string {
	names, _, err := w.raw.Children(w.root + "/q")
	if err != nil {
		return nil
	}
	sequence := func(name string) string { return name[max(0, len(name)-10):] }
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(sequence(a), sequence(b)) })
	return names
}

// removeNode removes one of the first nodes, as those are most worth it.
func (w *world) removeNode() {
	nodes := w.nodes()
	if len(nodes) == 0 {
		return
	}
	name := nodes[w.rand.IntN(min(2, len(nodes)))]
	w.cause(cause{what: "node removed", client: -1, node: nodeOf(name)}, func() {
		w.operator(w.raw.Delete(w.root+"/q/"+name, -1))
	})
}

func (w *world) removeQueue() {
	var ops []any
	for _, name := range w.nodes() {
		ops = append(ops, &zk.DeleteRequest{Path: w.root + "/q/" + name, Version: -1})
	}
	_, err := w.raw.Multi(append(ops, &zk.DeleteRequest{Path: w.root + "/q", Version: -1})...)
	w.operator(err)
}

// operator demands that an operator's request was done or refused: it must not come later.
func (w *world) operator(err error) {
	if err != nil && !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrNotEmpty) {
		w.Errorf("operator: %v", err)
	}
}

func TestHistoriesOnZooKeeperAreLinearizable(t *testing.T) {
	const batches, together = 3, 4
	zktest.Require(t)
	seed := rand.Uint64()
	var sum figures
	began := time.Now()
	for range batches {
		t.Run("batch", func(t *testing.T) {
			var worlds []*world
			for range together {
				worlds = append(worlds, newZooKeeper(t, seed))
				seed++
			}
			var playing sync.WaitGroup
			for _, w := range worlds {
				playing.Go(w.history)
			}
			playing.Wait()
			for _, w := range worlds {
				n := judge(t, fmt.Sprint("seed ", w.seed), w.recorder)
				require.Empty(t, w.wrong.all, "seed %d:\n%s", w.seed, strings.Join(w.wrong.all, "\n"))
				sum.add(w.recorder, n)
			}
		})
	}
	t.Logf("%v, %v", &sum, time.Since(began).Round(time.Millisecond))
	require.NotZero(t, sum.lost)
}
