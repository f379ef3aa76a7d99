package session

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the pictures that the pages show")

type picture struct {
	strings.Builder
	rows int
}

const second = 50 // pixels

func x(at time.Duration) float64 { return 190 + at.Seconds()*second }

func (p *picture) row(label string, times ...time.Duration) {
	y := 60 + 34*p.rows
	p.rows++
	fmt.Fprintf(p, "<text x=\"12\" y=\"%d\">%s</text>\n", y+13, label)
	for len(times) > 1 {
		fmt.Fprintf(p, "<rect class=\"bar%d\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"18\" rx=\"2\"/>\n", len(times)/2, x(times[0]), y, x(times[1])-x(times[0]))
		times = times[2:]
	}
}

func (p *picture) marks(at ...time.Duration) {
	for _, at := range at {
		fmt.Fprintf(p, "<path class=\"beat\" d=\"M%.1f %dv18\"/>\n", x(at), 60+34*(p.rows-1))
	}
}

func (p *picture) line(at time.Duration, text string) {
	fmt.Fprintf(p, "<path class=\"line\" d=\"M%.1f 52v%d\"/>\n<text class=\"dim\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
		x(at), 34*p.rows+4, x(at), 72+34*p.rows, text)
}

func (p *picture) check(t *testing.T, name, title string) {
	shown := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1000 %d" role="img"><title>%[2]s</title>
<style>
svg { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif }
text { fill: #1f2328 } .dim { fill: #59636e } .title { font-size: 16px; font-weight: 600 }
.ground { fill: #ffffff; stroke: #d1d9e0 } .bar1 { fill: #2f74c0 } .bar2 { fill: #c3ccd5 }
.beat { stroke: #1a7f37; stroke-width: 3 } .line { stroke: #cf222e; stroke-dasharray: 4 3 }
</style>
<rect class="ground" x=".5" y=".5" width="999" height="%[3]d" rx="4"/>
<text class="title" x="12" y="32">%[2]s</text>
%[4]s</svg>
`, 96+34*p.rows, title, 95+34*p.rows, p.String())
	file := "../../docs/use/" + name
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(shown), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), shown, "go test -run Picture ./driver/session -update writes it anew")
}

// TestPictureOfALease draws what happens when a holder's connection is cut.
func TestPictureOfALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout, cut = 10 * time.Second, 4 * time.Second
		began := time.Now()
		var beats []time.Duration
		f, other := newFake(), newFake()
		holder := connect(t, f, timeout)
		f.set(func() {
			f.before = func(ctx context.Context, what string) error {
				if time.Since(began) > cut {
					return hang(what)(ctx, what)
				}
				beats = append(beats, time.Since(began))
				return nil
			}
		})
		time.Sleep(cut)
		synctest.Wait()
		last := beats[len(beats)-1]
		other.deadline = began.Add(last + timeout)
		connect(t, expirer{other}, timeout)
		<-holder.Done()
		lost := time.Since(began)
		time.Sleep(timeout)
		synctest.Wait()
		ended := other.ended.Sub(began)

		p := new(picture)
		p.row("heartbeats answered")
		p.marks(beats...)
		p.row("the holder's lease", 0, lost)
		p.row("its session in the store", 0, ended)
		p.row("the next contender", 0, ended, ended, 16*time.Second)
		p.line(cut, fmt.Sprintf("cut off, %v", cut))
		p.line(lost, fmt.Sprintf("told, %v", lost))
		p.line(ended, fmt.Sprintf("granted, %v", ended))
		p.check(t, "lease.svg", "A holder is cut off, with session_timeout=10s")
	})
}

// TestPictureOfTheGrace draws what happens when the store loses its data.
func TestPictureOfTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout, gone = 10 * time.Second, 4 * time.Second
		began := time.Now()
		f := newFake()
		old := connect(t, f, timeout)
		time.Sleep(gone)
		f.set(func() { f.before = hang("beat", "look") }) // the holder does not learn of the loss
		told := make(chan time.Duration, 1)
		go func() {
			<-old.Done()
			told <- time.Since(began)
		}()
		connect(t, &graceful{fake: newFake(), until: time.Now().Add(timeout)}, timeout)
		granted, lost := time.Since(began), <-told

		p := new(picture)
		p.row("a holder of before", 0, lost)
		p.row("the new contender", gone, granted, granted, 16*time.Second)
		p.line(gone, fmt.Sprintf("data lost, %v", gone))
		p.line(lost, fmt.Sprintf("lease over, %v", lost))
		p.line(granted, fmt.Sprintf("grace over, %v", granted))
		p.check(t, "grace.svg", "The store loses its data, with session_timeout=10s")
	})
}
