package watches_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/watches"
)

// model computes what one watch should report, directly from the rules.
type model struct {
	watch    driver.Watch
	queue    string
	whole    bool
	version  int
	own      driver.Place
	ahead    []driver.Node
	stopped  bool
	expected reports
	received reports
}

func (m *model) live() bool { return !m.stopped && !m.expected.ended }

func (m *model) look(nodes []driver.Place, released driver.Node, version int) {
	named := func(name string) func(driver.Place) bool {
		return func(p driver.Place) bool { return p.Name == name }
	}
	switch {
	case m.whole:
		m.expected.ended = version != m.version
	case !slices.ContainsFunc(nodes, named(m.own.Name)), m.own.Token != 0 && !slices.Contains(nodes, m.own):
		m.expected.ended = true
	}
	for _, a := range m.ahead {
		if !m.expected.released && !slices.ContainsFunc(nodes, named(a.Name)) && a != released {
			m.expected.ended = true
		}
	}
	if !m.whole && !m.expected.ended && slices.Contains(m.ahead, released) {
		m.expected.released = true
	}
}

func (m *model) gone(n driver.Node, why driver.Cause) {
	if m.whole || m.own.Name == n.Name {
		m.expected.ended = true
		return
	}
	for _, a := range m.ahead {
		switch {
		case m.expected.released || a.Name != n.Name:
		case why == driver.Released && a == n:
			m.expected.released = true
		default:
			m.expected.ended = true
		}
	}
}

func FuzzSet(f *testing.F) {
	for _, s := range []string{"", "\x00\x21\x03\x01\x03\x02", "\x00\x35\x04\x01\x04\x02\x05\x03", "\x01\x00\x02\x01\x07\x00\x00\x12",
		"\x00\x21\x08\x22\x02\xff\x06\x00", "\x00\x62\x0a\x02\x00\x13\x03\x21"} {
		f.Add([]byte(s))
	}
	f.Fuzz(play)
}

func TestRandomCallsAgainstTheModel(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		calls := make([]byte, 200)
		for i := range calls {
			calls[i] = byte(r.Uint32())
		}
		play(t, calls)
	}
}

// play decodes bytes into calls of a Set and compares each watch with its
// model.
func play(t *testing.T, calls []byte) {
	calls = calls[:min(len(calls), 400)]
	var s watches.Set
	var all []*model
	over := false
	arm := func(m *model) {
		m.expected.ended = over
		all = append(all, m)
	}
	each := func(queue string, do func(*model)) {
		for _, m := range all {
			if m.live() && m.queue == queue {
				do(m)
			}
		}
	}
	for ; len(calls) >= 2; calls = calls[2:] {
		arg := calls[1]
		queue := string('p' + rune(arg>>7))
		p := place(int64(arg & 3))
		p.Epoch = int64(arg >> 6 & 1)
		ahead := []driver.Node{place(int64(arg >> 2 & 3)).Node, place(int64(arg >> 4 & 3)).Node}[:arg>>6&1+arg>>5&1]
		ahead = slices.DeleteFunc(ahead, func(n driver.Node) bool { return n.Name == p.Name })
		ahead = slices.Compact(ahead)
		switch calls[0] % 10 {
		case 0, 1:
			arm(&model{watch: s.Arm(queue, p, ahead...), queue: queue, own: p, ahead: ahead})
		case 2:
			p.Token = 0
			arm(&model{watch: s.Arm(queue, p, ahead...), queue: queue, own: p, ahead: ahead})
		case 3:
			version := int(arg & 3)
			arm(&model{watch: s.ArmQueue(queue, version), queue: queue, whole: true, version: version})
		case 4:
			s.Gone(queue, p.Node, driver.Changed)
			each(queue, func(m *model) { m.gone(p.Node, driver.Changed) })
		case 5:
			s.Gone(queue, p.Node, driver.Released)
			each(queue, func(m *model) { m.gone(p.Node, driver.Released) })
		case 6:
			s.Changed(queue)
			each(queue, func(m *model) { m.expected.ended = m.expected.ended || m.whole })
		case 7:
			var nodes []driver.Place
			for i := range int64(4) {
				if arg>>i&1 == 1 {
					n := place(i)
					n.Epoch = int64(arg >> 6 & 1)
					nodes = append(nodes, n)
				}
			}
			version := int(arg >> 4 & 3)
			before := len(all)
			var released driver.Node
			if i := arg >> 1 & 3; calls[0] >= 128 && arg>>i&1 == 0 {
				released = place(int64(i)).Node
			}
			mark := s.Mark()
			var ahead []driver.Node
			if released.Name != "" && released.Name != p.Name {
				ahead = append(ahead, released)
			}
			arm(&model{watch: s.Arm(queue, p, ahead...), queue: queue, own: p, ahead: ahead})
			s.Compare(queue, mark, nil, nodes, released, version)
			for _, m := range all[:before] {
				if m.live() && m.queue == queue {
					m.look(nodes, released, version)
				}
			}
		case 8:
			if len(all) > 0 {
				m := all[int(arg)%len(all)]
				m.watch.Stop()
				m.stopped = true
			}
		case 9:
			if arg < 16 {
				s.End()
				over = true
				for _, m := range all {
					if m.live() {
						m.expected.ended = true
					}
				}
			}
		}
		queues := map[string]bool{}
		for i, m := range all {
			got := receive(m.watch)
			require.False(t, got.released && m.received.released, "watch %d: Released came twice", i)
			m.received = reports{m.received.released || got.released, got.ended}
			if m.expected != m.received { // require.Equal would be too slow for every watch
				require.Equal(t, m.expected, m.received, "watch %d: %+v", i, m)
			}
			if m.live() {
				queues[m.queue] = true
			}
		}
		open := s.Queues()
		require.Len(t, open, len(queues))
		for _, queue := range open {
			require.True(t, queues[queue])
		}
	}
}
