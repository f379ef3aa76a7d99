package endtoend_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
)

var update = flag.Bool("update", false, "write into docs/use/coming-from.md who respects whom")

const comingFrom = "../../../docs/use/coming-from.md"

const (
	waits   = "waits"
	refused = "`ErrLocked`"
	enters  = "enters"
	fails   = "fails, and leaves its node"
)

type foreignLock struct {
	label string
	node  string // pattern of its node names
	start func(w *fixture) foreignLibrary
	kind  string
}

func (f foreignLock) library() string { return strings.Fields(f.label)[0] }

var foreignLocks = []foreignLock{
	{"Curator `InterProcessMutex`", "_c_<uuid>-lock-<seq>", curator, "mutex"},
	{"Curator `InterProcessReadWriteLock`, `writeLock()`", "_c_<uuid>-__WRIT__<seq>", curator, "write"},
	{"Curator `InterProcessReadWriteLock`, `readLock()`", "_c_<uuid>-__READ__<seq>", curator, "read"},
	{"kazoo `Lock`", "<uuid>__lock__<seq>", kazoo, "lock"},
	{"kazoo `WriteLock`", "<uuid>__lock__<seq>", kazoo, "write"},
	{"kazoo `ReadLock`", "<uuid>__rlock__<seq>", kazoo, "read"},
	{"kazoo `Lock` with patterns", "<uuid>__lock__<seq>", kazoo, "lock+"},
	{"kazoo `WriteLock` with patterns", "<uuid>__lock__<seq>", kazoo, "write+"},
	{"kazoo `ReadLock` with patterns", "<uuid>__rlock__<seq>", kazoo, "read+"},
	{"go-zookeeper `zk.Lock`", "_c_<uuid>-lock-<seq>", goZooKeeper, ""},
}

// The outcome must match the table in docs/use/coming-from.md.
func TestLocksOfOtherLibraries(t *testing.T) {
	w := newFixture(t)
	clients := w.clients(2, "")
	libraries := make(map[string]foreignLibrary)
	for _, f := range foreignLocks {
		if libraries[f.library()] == nil {
			libraries[f.library()] = f.start(w)
		}
	}
	var rows [][]string
	for i, f := range foreignLocks {
		d := comparison{w, libraries[f.library()], f, fmt.Sprintf("q%d", i), clients}
		require.Equal(t, refused, d.try((*dlock.RWMutex).TryLock), f.label)
		require.Equal(t, refused, d.try((*dlock.RWMutex).TryRLock), f.label)
		require.Equal(t, waits, d.contendOwn(dlock.Exclusive), f.label)
		require.Equal(t, waits, d.contendOwn(dlock.Shared), f.label)
		row := []string{f.label, d.contendForeign(dlock.Exclusive), d.contendForeign(dlock.Shared)}
		if same := slices.IndexFunc(rows, func(r []string) bool { return slices.Equal(r[1:], row[1:]) }); same >= 0 {
			rows[same][0] += "; " + f.label
		} else {
			rows = append(rows, row)
		}
	}
	seen := markdown("the other lock", "dlock holds exclusively", "dlock holds shared")(rows)

	isDocumented(t, "table", "TestLocksOfOtherLibraries", seen)
}

// isDocumented compares results with a table in docs/use/coming-from.md, or
// replaces it with -update.
func isDocumented(t *testing.T, name, test, seen string) {
	t.Helper()
	begin := "<!-- " + name + ": go test -C internal/longtest ./endtoend -run " + test + " -update -->\n"
	end := "<!-- end of " + name + " -->\n"
	page, err := os.ReadFile(comingFrom)
	require.NoError(t, err)
	before, rest, begun := strings.Cut(string(page), begin)
	documented, after, ended := strings.Cut(rest, end)
	require.True(t, begun && ended, "%s has no place for the %s", comingFrom, name)
	if *update {
		require.NoError(t, os.WriteFile(comingFrom, []byte(before+begin+seen+end+after), 0o600))
		return
	}
	require.Equal(t, documented, seen, "%s differs from the results", comingFrom)
}

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

type comparison struct {
	*fixture
	theirs  foreignLibrary
	foreign foreignLock
	queue   string
	clients []*dlock.Client
}

func (d comparison) lockForeign() (node string, release func()) {
	d.Helper()
	id, outcome := d.theirs.take(d.foreign.kind, d.path(d.queue))
	require.NoError(d, d.soonAfter(outcome), d.foreign.label)
	nodes := d.nodes(d.queue)
	require.Len(d, nodes, 1)
	like := strings.NewReplacer("<uuid>", "[0-9a-f-]+", "<seq>", "[0-9]{10}").Replace(d.foreign.node)
	require.Regexp(d, regexp.MustCompile("^"+like+"$"), nodes[0])
	return nodes[0], func() { d.theirs.release(id) }
}

func (d comparison) contendOwn(mode dlock.Mode) string {
	d.Helper()
	node, release := d.lockForeign()
	k := d.contend(d.clients[0], d.queue, mode)
	d.eventually(func() bool {
		_, wait := k.last()
		return k.over() || sequence(wait.Predecessor) == sequence(node)
	}, func() string {
		_, wait := k.last()
		return fmt.Sprintf("the call has not returned, and does not wait for %s: its last wait is %+v", node, wait)
	})
	seen := waits
	if k.over() {
		seen = enters
	}
	release()
	d.unlock(k.granted())
	return seen
}

func (d comparison) try(try func(*dlock.RWMutex, context.Context) (*dlock.Lock, error)) string {
	d.Helper()
	_, release := d.lockForeign()
	defer release()
	l, err := try(d.clients[0].RWMutex(d.queue), d.soon())
	if errors.Is(err, dlock.ErrLocked) {
		return refused
	}
	require.NoError(d, err)
	d.unlock(l)
	return enters
}

func (d comparison) contendForeign(mode dlock.Mode) string {
	d.Helper()
	d.queue += "-" + mode.String()
	l := d.contend(d.clients[1], d.queue, mode).granted()
	own := d.nodes(d.queue)[0]
	id, outcome := d.theirs.take(d.foreign.kind, d.path(d.queue))
	var err error
	over := false
	d.eventually(func() bool {
		select {
		case err = <-outcome:
			over = true
			return true
		default:
			return d.watchedByAnother(d.queue, own)
		}
	}, func() string { return "the other library has not answered, and does not watch the node of this lock" })
	d.unlock(l)
	switch {
	case !over:
		require.NoError(d, d.soonAfter(outcome))
		d.theirs.release(id)
		return waits
	case err == nil:
		d.theirs.release(id)
		return enters
	}
	d.Logf("%s: %v", d.foreign.label, err)
	left := d.nodes(d.queue)
	require.Len(d, left, 1)
	k := d.contend(d.clients[0], d.queue, dlock.Shared)
	k.waitsBehind(left[0])
	return fails
}

// watchedByAnother reports whether another session watches the node and thus
// waits for it.
func (w *fixture) watchedByAnother(queue, name string) bool {
	w.Helper()
	path := w.path(queue) + "/" + name
	_, stat, err := w.raw.Get(path)
	require.NoError(w, err)
	owner := fmt.Sprintf("0x%x", uint64(stat.EphemeralOwner))
	_, sessions, _ := strings.Cut(w.server.FourLetter("wchp"), path+"\n")
	for line := range strings.Lines(sessions) {
		session, isOne := strings.CutPrefix(line, "\t")
		if !isOne {
			return false // the next path begins
		}
		if strings.TrimSpace(session) != owner {
			return true
		}
	}
	return false
}
