package endtoend_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
)

var update = flag.Bool("update", false, "write into docs/coming-from.md who respects whom")

const (
	comingFrom  = "../../../docs/coming-from.md"
	tablesBegin = "<!-- tables: go test ./internal/longtest/endtoend -run TestWhoRespectsWhom -update -->\n"
	tablesEnd   = "<!-- end of tables -->\n"
)

// The outcomes of a call while another library holds the lock.
const (
	waits   = "waits"
	refused = "`ErrLocked`"
	enters  = "enters"
	fails   = "fails, and leaves its node"
)

// foreignLock is a kind of lock of another library.
type foreignLock struct {
	label string
	node  string // how its nodes are named
	note  string
	peer  func(w *world) peer
	kind  string
}

func (f foreignLock) library() string { return strings.Fields(f.label)[0] }

const readerCounts = "this reader counts as a writer"

var foreignLocks = []foreignLock{
	{"Curator `InterProcessMutex`", "_c_<uuid>-lock-<seq>", "", curator, "mutex"},
	{"Curator `InterProcessReadWriteLock`, `writeLock()`", "_c_<uuid>-__WRIT__<seq>", "", curator, "write"},
	{"Curator `InterProcessReadWriteLock`, `readLock()`", "_c_<uuid>-__READ__<seq>", readerCounts, curator, "read"},
	{"kazoo `Lock`", "<uuid>__lock__<seq>", "", kazoo, "lock"},
	{"kazoo `WriteLock`", "<uuid>__lock__<seq>", "", kazoo, "write"},
	{"kazoo `ReadLock`", "<uuid>__rlock__<seq>", readerCounts, kazoo, "read"},
	{"kazoo `Lock` with patterns", "<uuid>__lock__<seq>", "", kazoo, "lock+"},
	{"kazoo `WriteLock` with patterns", "<uuid>__lock__<seq>", "", kazoo, "write+"},
	{"kazoo `ReadLock` with patterns", "<uuid>__rlock__<seq>", readerCounts, kazoo, "read+"},
	{"go-zookeeper `zk.Lock`", "_c_<uuid>-lock-<seq>", "", goZooKeeper, ""},
}

// TestWhoRespectsWhom tries the locks of other libraries beside ours, on one
// server and path. It compares what it has seen with docs/coming-from.md.
func TestWhoRespectsWhom(t *testing.T) {
	w := newWorld(t)
	clients := w.clients(2)
	peers := make(map[string]peer)
	for _, f := range foreignLocks { // programs take seconds to start: all at the same time
		if peers[f.library()] == nil {
			peers[f.library()] = f.peer(w)
		}
	}
	var theyHold, weHold [][]string
	for i, f := range foreignLocks {
		d := duel{w, peers[f.library()], f, fmt.Sprintf("q%d", i), clients}
		theyHold = append(theyHold, []string{
			f.label, "`" + f.node + "`",
			d.contends(dlock.Exclusive), d.contends(dlock.Shared), d.tries((*dlock.RWMutex).TryLock), d.tries((*dlock.RWMutex).TryRLock), f.note,
		})
		weHold = append(weHold, []string{f.label, d.isFacedWith(dlock.Exclusive), d.isFacedWith(dlock.Shared)})
	}
	seen := markdown("They hold", "the node", "`Lock`", "`RLock`", "`TryLock`", "`TryRLock`", "mind")(theyHold) +
		markdown("They want", "dlock holds exclusively", "dlock holds shared")(weHold)

	page, err := os.ReadFile(comingFrom)
	require.NoError(t, err)
	before, rest, begun := strings.Cut(string(page), tablesBegin)
	said, after, ended := strings.Cut(rest, tablesEnd)
	require.True(t, begun && ended, "%s has no place for the tables", comingFrom)
	if *update {
		require.NoError(t, os.WriteFile(comingFrom, []byte(before+tablesBegin+seen+tablesEnd+after), 0o600))
		return
	}
	require.Equal(t, said, seen, "%s says something else than what was seen", comingFrom)
}

// markdown returns a function that writes a table.
func markdown(head ...string) func(rows [][]string) string {
	return func(rows [][]string) string {
		var b strings.Builder
		line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
		b.WriteString("\n")
		line(head)
		b.WriteString("|" + strings.Repeat("---|", len(head)) + "\n")
		for _, cells := range rows {
			line(cells)
		}
		return b.String() + "\n"
	}
}

// duel is one foreign lock beside ours.
type duel struct {
	*world
	peer    peer
	foreign foreignLock
	queue   string
	clients []*dlock.Client
}

// theirs takes the foreign lock and returns its node, and a function that gives
// it back.
func (d duel) theirs() (node string, release func()) {
	d.Helper()
	id, outcome := d.peer.take(d.foreign.kind, d.path(d.queue))
	require.NoError(d, d.soonAfter(outcome), d.foreign.label)
	nodes := d.nodes(d.queue)
	require.Len(d, nodes, 1)
	like := strings.NewReplacer("<uuid>", "[0-9a-f-]+", "<seq>", "[0-9]{10}").Replace(d.foreign.node)
	require.Regexp(d, regexp.MustCompile("^"+like+"$"), nodes[0])
	return nodes[0], func() { d.peer.release(id) }
}

// contends returns what becomes of Lock or RLock while the foreign lock is
// held. A call that waits wins the lock once the foreign one was released.
func (d duel) contends(mode dlock.Mode) string {
	d.Helper()
	node, release := d.theirs()
	k := d.contend(d.clients[0], d.queue, mode)
	d.eventually(func() bool { return k.over() || k.lastWait().Predecessor == node },
		func() string {
			return fmt.Sprintf("it neither enters nor waits for %s but for %+v", node, k.lastWait())
		})
	seen := waits
	if k.over() {
		seen = enters
	}
	release()
	d.unlock(k.granted())
	return seen
}

func (k *contender) over() bool {
	select {
	case <-k.done:
		return true
	default:
		return false
	}
}

// tries returns what becomes of TryLock or TryRLock while the foreign lock is held.
func (d duel) tries(try func(*dlock.RWMutex, context.Context) (*dlock.Lock, error)) string {
	d.Helper()
	_, release := d.theirs()
	defer release()
	l, err := try(d.clients[0].RWMutex(d.queue), d.soon())
	if errors.Is(err, dlock.ErrLocked) {
		return refused
	}
	require.NoError(d, err)
	d.unlock(l)
	return enters
}

// isFacedWith returns what becomes of the foreign lock while ours is held in
// that mode. A foreign lock that waits is won once ours was unlocked.
func (d duel) isFacedWith(mode dlock.Mode) string {
	d.Helper()
	d.queue += "-" + mode.String()
	l := d.contend(d.clients[1], d.queue, mode).granted()
	id, outcome := d.peer.take(d.foreign.kind, d.path(d.queue))
	var err error
	over := false
	d.eventually(func() bool {
		select {
		case err = <-outcome:
			over = true
			return true
		default:
			return d.watchedByAnother(d.queue, l.Node())
		}
	}, func() string { return "it neither enters nor waits" })
	d.unlock(l)
	switch {
	case !over:
		require.NoError(d, d.soonAfter(outcome))
		d.peer.release(id)
		return waits
	case err == nil:
		d.peer.release(id)
		return enters
	}
	d.Logf("%s: %v", d.foreign.label, err)
	left := d.nodes(d.queue)
	require.Len(d, left, 1)
	k := d.contend(d.clients[0], d.queue, dlock.Shared)
	k.waitsBehind(left[0])
	return fails
}

// watchedByAnother reports whether a session watches a node that belongs to
// another session.
func (w *world) watchedByAnother(queue, name string) bool {
	w.Helper()
	path := w.path(queue) + "/" + name
	_, stat, err := w.raw.Get(path)
	require.NoError(w, err)
	owner := fmt.Sprintf("0x%x", uint64(stat.EphemeralOwner))
	_, sessions, _ := strings.Cut(w.server.FourLetter("wchp"), path+"\n")
	for line := range strings.Lines(sessions) {
		session, isOne := strings.CutPrefix(line, "\t")
		if !isOne {
			return false // the next path
		}
		if strings.TrimSpace(session) != owner {
			return true
		}
	}
	return false
}
