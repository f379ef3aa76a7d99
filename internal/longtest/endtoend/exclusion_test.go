package endtoend_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
)

func TestExclusiveWaitsForExclusive(t *testing.T) {
	w := newFixture(t)
	c := w.clients(2)
	first := w.lock(c[0]).granted()
	second := w.lock(c[1])
	second.waitsBehind(first.Node())
	_, err := c[1].RWMutex("q").TryLock(w.soon())
	require.ErrorIs(t, err, dlock.ErrLocked)
	w.unlock(first)
	w.unlock(second.granted())
	w.listed("q")
}

func TestSharedHoldsTogetherWithShared(t *testing.T) {
	w := newFixture(t)
	c := w.clients(3)
	a, b := w.rlock(c[0]).granted(), w.rlock(c[1]).granted()
	third, err := c[2].RWMutex("q").TryRLock(w.soon())
	require.NoError(t, err)
	for _, l := range []*dlock.Lock{a, b, third} {
		require.NoError(t, l.Err())
		require.Equal(t, dlock.Shared, l.Mode())
	}
	w.listed("q", a.Node(), b.Node(), third.Node())
	w.unlock(b, a, third)
	w.listed("q")
}

func TestSharedWaitsForExclusive(t *testing.T) {
	w := newFixture(t)
	c := w.clients(2)
	writer := w.lock(c[0]).granted()
	reader := w.rlock(c[1])
	reader.waitsBehind(writer.Node())
	_, err := c[1].RWMutex("q").TryRLock(w.soon())
	require.ErrorIs(t, err, dlock.ErrLocked)
	w.unlock(writer)
	w.unlock(reader.granted())
}

func TestExclusiveWaitsForAllShared(t *testing.T) {
	w := newFixture(t)
	c := w.clients(3)
	a, b := w.rlock(c[0]).granted(), w.rlock(c[1]).granted()
	writer := w.lock(c[2])
	writer.waitsBehind(b.Node())
	_, err := c[2].RWMutex("q").TryLock(w.soon())
	require.ErrorIs(t, err, dlock.ErrLocked)
	w.unlock(b)
	writer.waitsBehind(a.Node())
	w.unlock(a)
	w.unlock(writer.granted())
}

func TestContendersOfOneSessionExcludeEachOther(t *testing.T) {
	w := newFixture(t)
	c := w.client("web1")
	first := w.lock(c).granted()
	second := w.lock(c)
	second.waitsBehind(first.Node())
	w.unlock(first)
	w.unlock(second.granted())
}

func TestFiveContendersAreGrantedInTheOrderOfArrival(t *testing.T) {
	w := newFixture(t)
	c := w.clients(6)
	held := w.lock(c[5]).granted()
	var queue []*contender
	for i := range 5 {
		before := held.Node()
		if i > 0 {
			before = queue[i-1].node()
		}
		k := w.lock(c[i])
		k.waitsBehind(before)
		queue = append(queue, k)
	}
	w.unlock(held)
	for i, k := range queue {
		lock := k.granted()
		for j, other := range queue[i+1:] {
			other.waits()
			require.Equal(t, queue[i+j].node(), other.lastWait().Predecessor)
		}
		require.Len(t, w.nodes("q"), len(queue)-i)
		w.unlock(lock)
	}
	w.listed("q")
}

func TestReaderBehindAQueuedWriterWaitsAlthoughReadersHold(t *testing.T) {
	w := newFixture(t)
	c := w.clients(3)
	holder := w.rlock(c[0]).granted()
	writer := w.lock(c[1])
	writer.waitsBehind(holder.Node())
	reader := w.rlock(c[2])
	reader.waitsBehind(writer.node())
	w.unlock(holder)
	lock := writer.granted()
	reader.waitsBehind(lock.Node())
	w.unlock(lock)
	w.unlock(reader.granted())
}

func TestReadersQueuedTogetherAreGrantedTogether(t *testing.T) {
	w := newFixture(t)
	c := w.clients(6)
	writer := w.lock(c[0]).granted()
	var readers []*contender
	for i := range 4 {
		k := w.rlock(c[1+i])
		k.waitsBehind(writer.Node())
		readers = append(readers, k)
	}
	last := w.lock(c[5])
	last.waitsBehind(readers[3].node())
	w.unlock(writer)
	var held []*dlock.Lock
	for _, k := range readers { // let all readers in before the first one unlocks
		held = append(held, k.granted())
	}
	for i := range held {
		last.waits()
		w.unlock(held[i])
	}
	w.unlock(last.granted())
}

func TestDowngradeGrantsQueuedReadersAndNoQueuedWriter(t *testing.T) {
	w := newFixture(t)
	c := w.clients(4)
	holder := w.lock(c[0]).granted()
	before := holder.Node()
	reader := w.rlock(c[1])
	reader.waitsBehind(before)
	writer := w.lock(c[2])
	writer.waitsBehind(reader.node())
	late := w.rlock(c[3])
	late.waitsBehind(writer.node())

	require.NoError(t, holder.Downgrade(w.soon()))
	require.Equal(t, "web0-R-"+sequence(before), holder.Node(), "the place is kept")
	first := reader.granted()
	w.listed("q", holder.Node(), first.Node(), writer.node(), late.node())
	w.unlock(first)
	writer.waitsBehind(holder.Node())
	late.waits()
	require.NoError(t, holder.Err())
	w.unlock(holder)
	lock := writer.granted()
	late.waits()
	w.unlock(lock)
	w.unlock(late.granted())
	w.listed("q")
}

func TestADowngradedHolderBlocksTheWriterRightBehindIt(t *testing.T) {
	w := newFixture(t)
	c := w.clients(2)
	holder := w.lock(c[0]).granted()
	writer := w.lock(c[1])
	writer.waitsBehind(holder.Node())
	require.NoError(t, holder.Downgrade(w.soon()))
	require.Equal(t, "web0-R-", holder.Node()[:len(holder.Node())-10])
	writer.waitsBehind(holder.Node())
	w.unlock(holder)
	w.unlock(writer.granted())
}

func TestChildrenWithoutASequenceAreNoContenders(t *testing.T) {
	w := newFixture(t)
	c := w.clients(2)
	w.unlock(w.lock(c[0]).granted())
	for _, name := range []string{"README", "tmp-x"} {
		_, err := w.raw.Create(w.path("q")+"/"+name, []byte("a note"), 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	lock := w.lock(c[0]).granted()
	second := w.lock(c[1])
	second.waitsBehind(lock.Node())
	require.Equal(t, 2, second.lastWait().Position)
	w.unlock(lock)
	w.unlock(second.granted())
	try, err := c[0].RWMutex("q").TryLock(w.soon())
	require.NoError(t, err)
	w.unlock(try)
	left := w.nodes("q")
	slices.Sort(left)
	require.Equal(t, []string{"README", "tmp-x"}, left)
}

func TestASequencedChildOfAnUnknownKindBlocksAsExclusive(t *testing.T) {
	w := newFixture(t)
	c := w.clients(2)
	w.unlock(w.lock(c[0]).granted()) // use up sequence 0
	const foreign = "other-X-0000000000"
	_, err := w.raw.Create(w.path("q")+"/"+foreign, nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)

	_, err = c[0].RWMutex("q").TryLock(w.soon())
	require.ErrorIs(t, err, dlock.ErrLocked)
	_, err = c[0].RWMutex("q").TryRLock(w.soon())
	require.ErrorIs(t, err, dlock.ErrLocked)
	reader := w.rlock(c[0])
	reader.waitsBehind(foreign)
	writer := w.lock(c[1])
	writer.waitsBehind(reader.node())
	w.remove("q", foreign)
	w.unlock(reader.granted())
	w.unlock(writer.granted())
}

func TestAWriterNeverHoldsTogetherWithAnotherHolder(t *testing.T) {
	w := newFixture(t)
	var inside referee
	var all sync.WaitGroup
	for i, c := range w.clients(6) {
		all.Go(func() {
			for n := range 30 {
				m := c.RWMutex("q")
				enter := m.Lock
				if (i+n)%3 == 0 {
					enter = m.RLock
				}
				lock, err := enter(w.soon())
				if err != nil {
					inside.add("client %d: %w", i, err)
					return
				}
				inside.enter(lock)
				if n%5 == 0 && lock.Mode() == dlock.Exclusive {
					inside.leave(lock)
					if err := lock.Downgrade(w.soon()); err != nil {
						inside.add("downgrade: %w", err)
					}
					inside.enter(lock)
				}
				inside.leave(lock)
				if err := release(lock); err != nil {
					inside.add("unlock: %w", err)
				}
			}
		})
	}
	all.Wait()
	inside.none(t)
	w.listed("q")
}

func TestNodeNamesAreHostKindAndTenDigitsBelowTheLocksPath(t *testing.T) {
	for _, queue := range []string{"q", "stock/42", "a/b/c/d"} {
		t.Run(queue, func(t *testing.T) {
			w := newFixture(t)
			c := w.client("web1.example")
			for i := range 3 {
				lock := w.contend(c, queue, dlock.Exclusive).granted()
				want := fmt.Sprintf("web1.example-W-%010d", 2*i)
				require.Equal(t, want, lock.Node())
				require.Equal(t, []string{want}, w.nodes(queue))
				_, stat, err := w.raw.Get(w.path(queue) + "/" + want)
				require.NoError(t, err)
				require.NotZero(t, stat.EphemeralOwner)
				require.Equal(t, stat.Czxid, lock.Token())
				w.unlock(lock)

				reader := w.contend(c, queue, dlock.Shared).granted()
				want = fmt.Sprintf("web1.example-R-%010d", 2*i+1)
				require.Equal(t, want, reader.Node())
				require.Equal(t, []string{want}, w.nodes(queue))
				w.unlock(reader)
			}
		})
	}
}

func TestLocksBelowEachOtherAreDifferentLocks(t *testing.T) {
	w := newFixture(t)
	c := w.clients(2)
	above := w.contend(c[0], "stock", dlock.Exclusive).granted()
	below := w.contend(c[1], "stock/42", dlock.Exclusive).granted()
	require.Equal(t, []string{"web1-W-0000000000"}, w.nodes("stock/42"))
	again := w.contend(c[1], "stock", dlock.Exclusive)
	again.waitsBehind(above.Node())
	w.unlock(above)
	w.unlock(again.granted(), below)
}

func TestWithoutAChrootALockLivesBelowTheRoot(t *testing.T) {
	w := newFixture(t)
	c := w.open("zk://"+w.server.Addr(), "web1")
	lock := w.contend(c, w.root[1:]+"/q", dlock.Exclusive).granted()
	require.Equal(t, []string{"web1-W-0000000000"}, w.nodes("q"))
	w.unlock(lock)
}
