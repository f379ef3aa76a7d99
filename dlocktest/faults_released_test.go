package dlocktest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
)

// scripted is a session whose watches end when the test says so.
type scripted struct {
	driver.Session
	watches map[string]chan driver.Cause
}

func (s *scripted) Watch(_ context.Context, _, name string) (<-chan driver.Cause, error) {
	s.watches[name] = make(chan driver.Cause, 1)
	return s.watches[name], nil
}

func (s *scripted) end(name string, c driver.Cause) {
	if c == driver.Released {
		s.watches[name] <- c
	}
	close(s.watches[name])
}

// ended returns how a watch has ended: "released", "changed", or "" for not yet.
func ended(c <-chan driver.Cause) string {
	select {
	case cause := <-c:
		return cause.String()
	default:
		return ""
	}
}

// scriptedFaults arms watches of the given names and lets the test end them.
func scriptedFaults(t *testing.T, decide Decide, names []string, test func(s *scripted, w map[string]<-chan driver.Cause)) {
	inBubble(t, nil, func(t *testing.T, w *faultyWorld) {
		in := &scripted{w.eyes, make(map[string]chan driver.Cause)}
		f := NewFaults(connectorFunc(func(context.Context) (driver.Session, error) { return in, nil }), decide)
		s, err := f.Connect(t.Context())
		require.NoError(t, err)
		armed := make(map[string]<-chan driver.Cause)
		for _, name := range names {
			armed[name], err = s.Watch(t.Context(), "q", name)
			require.NoError(t, err)
		}
		test(in, armed)
		require.NoError(t, s.Close())
	})
}

func TestReleasedPassesThrough(t *testing.T) {
	scriptedFaults(t, Rates{}.Decide, []string{"a", "b"}, func(s *scripted, w map[string]<-chan driver.Cause) {
		s.end("a", driver.Released)
		s.end("b", driver.Changed)
		synctest.Wait()
		assert.Equal(t, "released", ended(w["a"]))
		assert.Equal(t, "changed", ended(w["a"]), "it closes after that")
		assert.Equal(t, "changed", ended(w["b"]))
	})
}

// slow delays the ends of some watches.
func slow(delays map[string]time.Duration) Decide {
	return func(_ context.Context, r Request) Fault {
		if r.Stage == StageWatch {
			return Fault{Delay: delays[r.Name]}
		}
		return Fault{}
	}
}

func TestReleasedWaitsForEarlierEnds(t *testing.T) {
	for name, early := range map[string]driver.Cause{"changed": driver.Changed, "released": driver.Released} {
		t.Run(name, func(t *testing.T) {
			scriptedFaults(t, slow(map[string]time.Duration{"a": time.Second}), []string{"a", "b"},
				func(s *scripted, w map[string]<-chan driver.Cause) {
					s.end("a", early)
					s.end("b", driver.Released)
					synctest.Wait()
					assert.Empty(t, ended(w["b"]), "a has ended before")
					time.Sleep(time.Second)
					synctest.Wait()
					assert.Equal(t, name, ended(w["a"]))
					assert.Equal(t, "released", ended(w["b"]))
				})
		})
	}
}

func TestChangedWaitsForNothing(t *testing.T) {
	scriptedFaults(t, slow(map[string]time.Duration{"a": time.Second}), []string{"a", "b"},
		func(s *scripted, w map[string]<-chan driver.Cause) {
			s.end("a", driver.Released)
			synctest.Wait()
			s.end("b", driver.Changed)
			synctest.Wait()
			assert.Equal(t, "changed", ended(w["b"]))
			time.Sleep(time.Second)
			synctest.Wait()
			assert.Equal(t, "released", ended(w["a"]))
		})
}

func TestReleasedIsNotToldOnceTheSessionHasEnded(t *testing.T) {
	scriptedFaults(t, slow(map[string]time.Duration{"a": time.Second}), []string{"a"},
		func(s *scripted, w map[string]<-chan driver.Cause) {
			s.end("a", driver.Released)
			synctest.Wait()
			require.NoError(t, s.Close())
			synctest.Wait()
			assert.Equal(t, "changed", ended(w["a"]))
		})
}

func TestSessionHasTheOptionalInterfacesOfTheOneBehind(t *testing.T) {
	for i := range 16 {
		in := optional(i)
		f := NewFaults(connectorFunc(func(context.Context) (driver.Session, error) { return in, nil }), Rates{}.Decide)
		s, err := f.Connect(t.Context())
		require.NoError(t, err)
		assert.Equal(t, abilities(in), abilities(s), "combination %d", i)
		assert.Equal(t, in, Behind(s))
		require.NoError(t, s.Close())
	}
	assert.Equal(t, driver.Session(nil), Behind(nil))
}

// optional returns a session with the optional interfaces whose bits are set.
func optional(bits int) driver.Session {
	type (
		r = driver.Replacer
		g = driver.Releaser
		i = driver.Reader
		w = driver.Walker
	)
	s := &closable{done: make(chan struct{})}
	return []driver.Session{
		s,
		struct {
			*closable
			r
		}{closable: s},
		struct {
			*closable
			g
		}{closable: s},
		struct {
			*closable
			r
			g
		}{closable: s},
		struct {
			*closable
			i
		}{closable: s},
		struct {
			*closable
			r
			i
		}{closable: s},
		struct {
			*closable
			g
			i
		}{closable: s},
		struct {
			*closable
			r
			g
			i
		}{closable: s},
		struct {
			*closable
			w
		}{closable: s},
		struct {
			*closable
			r
			w
		}{closable: s},
		struct {
			*closable
			g
			w
		}{closable: s},
		struct {
			*closable
			r
			g
			w
		}{closable: s},
		struct {
			*closable
			i
			w
		}{closable: s},
		struct {
			*closable
			r
			i
			w
		}{closable: s},
		struct {
			*closable
			g
			i
			w
		}{closable: s},
		struct {
			*closable
			r
			g
			i
			w
		}{closable: s},
	}[bits]
}

// closable is a session that can do nothing but close.
type closable struct {
	driver.Session
	done chan struct{}
}

func (s *closable) Done() <-chan struct{} { return s.done }
func (s *closable) Err() error            { return nil }
func (s *closable) Close() error          { close(s.done); return nil }
