package watches_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/watches"
)

func place(seq int64) driver.Place {
	return driver.Place{Node: driver.Node{Name: driver.FormatName("n-W-", seq), Seq: seq, Epoch: 1}, Token: 100 + seq}
}

type reports struct{ released, ended bool }

var (
	open     = reports{}
	released = reports{released: true}
	ended    = reports{ended: true}
)

func receive(w driver.Watch) (r reports) {
	for {
		select {
		case cause, more := <-w.C:
			if !more {
				r.ended = true
				return r
			}
			r.released = cause == driver.Released && !r.released
		default:
			return r
		}
	}
}

func look(s *watches.Set, version any, nodes ...driver.Place) {
	s.Compare("q", s.Mark(), nil, nodes, driver.Node{}, version)
}

func TestAWatchEndsIfALookMissesOneOfItsNodes(t *testing.T) {
	again := place(3)
	again.Epoch, again.Token = 2, 200
	foreign := driver.Place{Node: place(3).Node}
	for name, c := range map[string]struct {
		nodes []driver.Place
		want  reports
	}{
		"all stand":                                  {[]driver.Place{place(1), place(2), place(3), place(4)}, open},
		"the own node is missing":                    {[]driver.Place{place(1), place(2), place(4)}, ended},
		"a node ahead is missing":                    {[]driver.Place{place(2), place(3)}, ended},
		"the queue is empty":                         {nil, ended},
		"the queue was made again":                   {[]driver.Place{place(1), place(2), again}, ended},
		"another program took the name":              {[]driver.Place{place(1), place(2), foreign}, ended},
		"another program's node of the name as well": {[]driver.Place{place(1), foreign, place(2), place(3)}, open},
		"tokens of others are unknown":               {[]driver.Place{{Node: place(1).Node}, {Node: place(2).Node}, place(3)}, open},
	} {
		t.Run(name, func(t *testing.T) {
			var s watches.Set
			w := s.Arm("q", place(3), place(1).Node, place(2).Node)
			look(&s, nil, c.nodes...)
			assert.Equal(t, c.want, receive(w))
		})
	}
}

func TestALookIgnoresWatchesThatWereArmedLater(t *testing.T) {
	var s watches.Set
	older := s.Arm("q", place(1))
	before := s.Mark()
	w, whole := s.Arm("q", place(2)), s.ArmQueue("q", 2)
	s.Compare("q", before, nil, nil, driver.Node{}, 1)
	assert.Equal(t, ended, receive(older))
	assert.Equal(t, open, receive(w))
	assert.Equal(t, open, receive(whole))
	look(&s, 3)
	assert.Equal(t, ended, receive(w))
	assert.Equal(t, ended, receive(whole))

	w = s.Arm("q", place(3), place(1).Node)
	s.Gone("q", place(1).Node, driver.Released)
	s.Compare("q", s.Mark(), s.Names("q"), nil, driver.Node{}, nil)
	assert.Equal(t, reports{released: true, ended: true}, receive(w), "a released node is no longer asked for")
}

func TestALookThatFindsARelease(t *testing.T) {
	other := place(1).Node
	other.Epoch = 2
	for name, c := range map[string]struct {
		nodes    []driver.Place
		released driver.Node
		want     reports
	}{
		"only the released node is missing": {[]driver.Place{place(2), place(3)}, place(1).Node, released},
		"another node ahead is missing":     {[]driver.Place{place(3)}, place(1).Node, ended},
		"the own node is missing":           {[]driver.Place{place(2)}, place(1).Node, ended},
		"the own node was released":         {[]driver.Place{place(1), place(2)}, place(3).Node, ended},
		"a node of another epoch":           {[]driver.Place{place(2), place(3)}, other, ended},
		"a node of another watch":           {[]driver.Place{place(1), place(2), place(3)}, place(4).Node, open},
	} {
		t.Run(name, func(t *testing.T) {
			var s watches.Set
			w := s.Arm("q", place(3), place(1).Node, place(2).Node)
			s.Compare("q", s.Mark(), nil, c.nodes, c.released, nil)
			assert.Equal(t, c.want, receive(w))
		})
	}
}

func TestAWatchOfAQueueEndsWithItsVersion(t *testing.T) {
	for name, c := range map[string]struct {
		armed, seen any
		want        reports
	}{
		"the same":       {int64(7), int64(7), open},
		"another one":    {int64(7), int64(8), ended},
		"an older one":   {int64(7), int64(6), ended},
		"the zero value": {0, 0, open},
		"both unknown":   {nil, nil, ended},
		"now unknown":    {7, nil, ended},
		"unknown before": {nil, 7, ended},
	} {
		t.Run(name, func(t *testing.T) {
			var s watches.Set
			w := s.ArmQueue("q", c.armed)
			look(&s, c.seen)
			assert.Equal(t, c.want, receive(w))
		})
	}
}

func TestNoticesAreReceivedInOrder(t *testing.T) {
	var s watches.Set
	w := s.Arm("q", place(2), place(1).Node)
	s.Gone("q", place(2).Node, driver.Changed)
	s.Gone("q", place(1).Node, driver.Released)
	assert.Equal(t, ended, receive(w))

	w = s.Arm("q", place(2), place(1).Node)
	s.Gone("q", place(1).Node, driver.Released)
	s.Gone("q", place(2).Node, driver.Changed)
	assert.Equal(t, reports{released: true, ended: true}, receive(w))

	w = s.Arm("q", place(2), place(1).Node)
	s.Announced("q", place(1).Node, driver.Released, "")
	assert.Equal(t, ended, receive(w), "no proof was read")
}

func TestStopRemovesAWatch(t *testing.T) {
	var s watches.Set
	w, stays := s.Arm("q", place(2), place(1).Node), s.Arm("q", place(1))
	whole := s.ArmQueue("p", nil)
	assert.ElementsMatch(t, []string{"p", "q"}, s.Queues())
	assert.ElementsMatch(t, []string{place(1).Name, place(2).Name}, s.Names("q"))
	assert.Empty(t, s.Names("p"), "a watch of the whole queue has no nodes")
	assert.Equal(t, 3, s.Len())
	assert.True(t, s.Has("p"))
	w.Stop()
	w.Stop()
	whole.Stop()
	assert.Equal(t, []string{"q"}, s.Queues())
	assert.Equal(t, []string{place(1).Name}, s.Names("q"))
	assert.Equal(t, 1, s.Len())
	assert.False(t, s.Has("p"))
	s.Gone("q", place(1).Node, driver.Released)
	assert.Equal(t, open, receive(w))
	assert.Equal(t, ended, receive(stays))
	assert.Empty(t, s.Queues())
	stays.Stop()
}

func TestTheNextNodeIsTheFirstThatAWatchWaitsFor(t *testing.T) {
	var s watches.Set
	next := func(own, ahead int64) {
		t.Helper()
		o, a := s.Next("q")
		assert.Equal(t, []int64{own, ahead}, []int64{o.Seq, a.Seq})
	}
	s.Arm("q", place(1))
	next(0, 0)
	s.Arm("q", place(5), place(2).Node)
	s.Arm("q", place(7), place(4).Node)
	next(5, 2)
	s.Gone("q", place(2).Node, driver.Released)
	next(7, 4)
	s.Arm("q", driver.Place{Node: place(3).Node})
	next(0, 3)
}

// Many waiters take the lock in turn, while goroutines call the other methods.
func TestManyGoroutines(t *testing.T) {
	const waiters = 50
	var s watches.Set
	all := make([]driver.Place, waiters)
	for i := range all {
		all[i] = place(int64(i))
	}
	done := make(chan struct{})
	var background, waiting sync.WaitGroup
	background.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				look(&s, 1, all...)
				s.ArmQueue("q", 2).Stop()
				s.Changed("q")
				s.Queues()
			}
		}
	})
	causes := make([]driver.Cause, waiters)
	for i := 1; i < waiters; i++ {
		w := s.Arm("q", all[i], all[i-1].Node)
		waiting.Go(func() {
			causes[i] = <-w.C
			s.Gone("q", all[i].Node, driver.Released)
			<-w.C // closed, because the waiter's own node is gone
		})
	}
	s.Gone("q", all[0].Node, driver.Released)
	waiting.Wait()
	close(done)
	background.Wait()
	for i := 1; i < waiters; i++ {
		assert.Equal(t, driver.Released, causes[i], "waiter %d", i)
	}
	assert.Empty(t, s.Queues())
}
