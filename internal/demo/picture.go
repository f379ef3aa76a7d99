package demo

import (
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
)

// Dimensions of the picture, in pixels.
const (
	pictureWidth = 880
	rowsTop      = 118
	rowHeight    = 26
	barHeight    = 16
	waitHeight   = 6
	letterWidth  = 7 // approximate width of a label's letter
	longestLabel = 40
)

// maxDrawn is the maximum number of attempts in the picture.
const maxDrawn = 2000

// pictureTarget returns the path of the file that name refers to, following
// links. The file may be missing. Anything but a regular file, such as
// /dev/null, is an error, because it must not be replaced.
func pictureTarget(name string) (string, error) {
	if target, err := filepath.EvalSymlinks(name); err == nil {
		name = target
	}
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return name, nil
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s is not a regular file", name)
	}
	return name, nil
}

// checkPicture returns an error if writePicture would not be able to write the
// file.
func checkPicture(name string) error {
	name, err := pictureTarget(name)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err == nil {
		file.Close()
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(name), temporary)
	if err != nil {
		return err
	}
	return errors.Join(temp.Close(), os.Remove(temp.Name()))
}

const temporary = ".dlock-demo-*.svg"

// writePicture replaces the file atomically, so that nobody sees an incomplete
// picture.
func writePicture(name, picture string) error {
	name, err := pictureTarget(name)
	if err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(name), temporary)
	if err != nil {
		return err
	}
	_, err = temp.WriteString(picture)
	err = cmp.Or(err, temp.Chmod(0o644), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), name)
	}
	if err != nil {
		return errors.Join(err, temp.Close(), os.Remove(temp.Name()))
	}
	return nil
}

// handOver is the passing of the lock from one attempt to another, drawn as an
// arrow. It happens when the first attempt releases the lock, or when the
// session of that attempt ends.
type handOver struct{ from, to *attempt }

// handOvers returns the hand-overs, sorted by the time of the grant. Each comes
// from the conflicting hold that ended last before the grant.
func handOvers(attempts []*attempt) (all []handOver) {
	var held []*attempt
	for _, t := range attempts {
		if t.Held {
			held = append(held, t)
		}
	}
	granted, ended := slices.Clone(held), held
	slices.SortStableFunc(granted, func(a, b *attempt) int { return cmp.Compare(a.Granted, b.Granted) })
	slices.SortStableFunc(ended, func(a, b *attempt) int {
		return cmp.Or(cmp.Compare(a.Ended, b.Ended), cmp.Compare(a.Granted, b.Granted))
	})
	var writer, last *attempt
	for _, t := range granted {
		for len(ended) > 0 && ended[0].Ended <= t.Granted && ended[0] != t {
			last = ended[0]
			if last.Mode == dlock.Exclusive {
				writer = last
			}
			ended = ended[1:]
		}
		from := writer
		if t.Mode == dlock.Exclusive {
			from = last
		}
		if from != nil && (from.Ended >= t.Asked || from.fell()) {
			all = append(all, handOver{from, t})
		}
	}
	return all
}

// picture is the timeline of a run, as an SVG.
type picture struct {
	strings.Builder
	left  float64 // where the time axis begins
	end   time.Duration
	rows  map[string]int // by worker
	names []string       // names of the workers, in the order of their rows

	fell, marked bool // for the legend: whether some hold was not released, and whether there are marks
}

// drawPicture returns the timeline of a run as an SVG, with one row per worker.
// Rows are sorted by the workers' first places in the queue.
func drawPicture(s *settings, attempts []*attempt) string {
	drawn := slices.Clone(attempts)
	slices.SortStableFunc(drawn, inQueueOrder)
	left := max(0, len(drawn)-maxDrawn)
	drawn = drawn[:len(drawn)-left]
	p := &picture{rows: make(map[string]int), end: 1}
	labels := 0
	for _, t := range drawn {
		p.end = max(p.end, t.Ended)
		for _, n := range t.Notes {
			p.end = max(p.end, n.At)
		}
		p.fell = p.fell || t.fell()
		p.marked = p.marked || ends[t.Outcome] != ""
		if _, known := p.rows[t.Worker]; !known {
			p.rows[t.Worker] = len(p.names)
			p.names = append(p.names, t.Worker)
			labels = max(labels, len([]rune(shortened(t.Worker))))
		}
	}
	p.left = float64(28 + labels*letterWidth)
	p.head(s, left)
	p.axis()
	for i, name := range p.names {
		fmt.Fprintf(p, `<text x="%.0f" y="%d" text-anchor="end">%s</text>`+"\n", p.left-10, middleOf(i)+4, escaped(shortened(name)))
	}
	for _, t := range drawn {
		p.attempt(t)
	}
	for _, h := range handOvers(drawn) {
		p.arrow(h)
	}
	for _, t := range drawn {
		p.marks(t)
	}
	p.WriteString("</svg>\n")
	return p.String()
}

const pictureStyle = `
svg { font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif }
text { fill: #1f2328 } .title { font-size: 16px; font-weight: 600 } .dim { fill: #59636e }
.ground { fill: #ffffff; stroke: #d1d9e0 } .grid { stroke: #e3e8ed } .wait { fill: #c3ccd5 }
.shared { fill: #2f74c0 } .exclusive { fill: #bc5215 } .token { fill: #ffffff; font-size: 11px }
.arrow { stroke: #1f2328; stroke-width: 1.5; fill: none } .head { fill: #1f2328 }
.during { stroke: #ffffff; stroke-width: 2 }
.after { stroke-dasharray: 4 3 } .mark { stroke: #cf222e; stroke-width: 2.5; fill: none } .bad { fill: #cf222e }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .dim { fill: #9198a1 } .ground { fill: #0d1117; stroke: #3d444d }
.grid { stroke: #262c36 } .wait { fill: #4a535e } .arrow { stroke: #e6edf3 } .head { fill: #e6edf3 }
.shared { fill: #3b82d0 } .exclusive { fill: #cc621f } .token { fill: #ffffff } .mark { stroke: #ff7b72 } .bad { fill: #ff7b72 }
}
`

func (p *picture) head(s *settings, left int) {
	height := rowsTop + len(p.names)*rowHeight + 14
	fmt.Fprintf(p, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img">`+"\n", pictureWidth, height)
	title := fmt.Sprintf("%d workers share one read-write lock", len(p.names))
	if s.Fault != "" {
		title = map[string]string{
			faultPause: "A process is paused while it holds the lock",
			faultCut:   "A process is cut off from the store while it holds the lock",
			faultKill:  "A process is killed while it holds the lock",
		}[s.Fault]
	}
	about := "Readers share the lock, a writer has it alone. First come, first served."
	if s.Fault != "" {
		about = "The next worker gets the lock, with a greater token. So the late write of the first is refused."
	}
	if left > 0 {
		about += fmt.Sprintf(" The first %d attempts of %d.", maxDrawn, maxDrawn+left)
	}
	fmt.Fprintf(p, "<title>dlock demo: %s</title>\n<style>%s</style>\n", title, pictureStyle)
	fmt.Fprintf(p, `<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto"><path class="head" d="M0 0 8 4 0 8z"/></marker></defs>`+"\n")
	fmt.Fprintf(p, `<rect class="ground" x="0.5" y="0.5" width="%d" height="%d" rx="6"/>`+"\n", pictureWidth-1, height-1)
	fmt.Fprintf(p, `<text class="title" x="18" y="28">%s</text>`+"\n", title)
	fmt.Fprintf(p, `<text class="dim" x="18" y="47">%s</text>`+"\n", about)
	fmt.Fprintf(p, `<text class="dim" x="%d" y="28" text-anchor="end">lock %s, store %s</text>`+"\n", pictureWidth-18, escaped(shortened(s.Lock)), escaped(s.Driver))
	p.legend(s.Fault != "")
}

func (p *picture) legend(fault bool) {
	const y = 70
	x := 18
	entry := func(symbol, text string) {
		fmt.Fprintf(p, `<g transform="translate(%d %d)">%s<text x="30" y="4">%s</text></g>`+"\n", x, y, symbol, text)
		x += 30 + len(text)*letterWidth + 12
	}
	bar := func(class string, height int) string {
		return fmt.Sprintf(`<path class="%s" d="M0-%dh22v%dh-22z"/>`, class, height/2, height)
	}
	entry(bar("wait", waitHeight), "waits")
	if !fault {
		entry(bar("shared", barHeight), "holds it shared")
	}
	entry(bar("exclusive", barHeight), "holds it exclusively")
	if !fault {
		entry(`<path class="arrow" d="M0 0h21" marker-end="url(#head)"/>`, "hands it over")
	}
	if p.fell {
		entry(`<path class="arrow after" d="M0 0h21" marker-end="url(#head)"/>`, "its session ends, the next gets the lock")
	}
	if p.marked && !fault {
		entry(`<path class="mark" d="M6-5 16 5M16-5 6 5"/>`, "lost it, or gave up")
	}
}

func (p *picture) axis() {
	const most = 8
	bottom := rowsTop + len(p.names)*rowHeight
	step := time.Nanosecond
	for factors := []time.Duration{2, 5, 10}; step < p.end/most; factors = append(factors[1:], factors[0]*10) {
		step = factors[0]
	}
	for d := time.Duration(0); d <= p.end; d += step {
		fmt.Fprintf(p, `<path class="grid" d="M%.1f %dV%d"/>`, p.x(d), rowsTop-8, bottom)
		fmt.Fprintf(p, `<text class="dim" x="%.1f" y="%d" text-anchor="middle">%v</text>`+"\n", p.x(d), rowsTop-14, d)
	}
}

// x returns the horizontal position of a time.
func (p *picture) x(d time.Duration) float64 {
	return p.left + float64(d)/float64(p.end)*(pictureWidth-40-p.left)
}

func middleOf(row int) int { return rowsTop + row*rowHeight + rowHeight/2 }

// attempt draws an attempt's wait and hold. Even a short hold must be visible.
func (p *picture) attempt(t *attempt) {
	y := middleOf(p.rows[t.Worker])
	waited := t.Ended
	if t.Held {
		waited = t.Granted
	}
	if width := p.x(waited) - p.x(t.Asked); width >= 0.05 {
		fmt.Fprintf(p, `<rect class="wait" x="%.1f" y="%d" width="%.1f" height="%d"/>`+"\n", p.x(t.Asked), y-waitHeight/2, width, waitHeight)
	}
	if !t.Held {
		return
	}
	class := "shared"
	if t.Mode == dlock.Exclusive {
		class = "exclusive"
	}
	x, width := p.x(t.Granted), max(2, p.x(t.Ended)-p.x(t.Granted))
	about := escaped(fmt.Sprintf("%s, %v, token %d, %s to %s", t.Worker, t.Mode, t.Token, seconds(t.Granted), seconds(t.Ended)))
	fmt.Fprintf(p, `<rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d" rx="2"><title>%s</title></rect>`+"\n", class, x, y-barHeight/2, width, barHeight, about)
	if text := fmt.Sprintf("token %d", t.Token); width >= float64(len(text)*letterWidth) {
		fmt.Fprintf(p, `<text class="token" x="%.1f" y="%d">%s</text>`+"\n", x+5, y+4, text)
	}
}

// arrow draws a hand-over, from the end of one bar to the beginning of another.
// The arrow is dashed if the lock was passed on because a session ended, not
// because it was released.
func (p *picture) arrow(h handOver) {
	from, to := middleOf(p.rows[h.from.Worker]), middleOf(p.rows[h.to.Worker])
	half := barHeight / 2
	switch {
	case from < to:
		from, to = from+half, to-half
	case from > to:
		from, to = from-half, to+half
	}
	class := "arrow"
	if h.from.fell() {
		class = "arrow after"
	}
	fmt.Fprintf(p, `<path class="%s" d="M%.1f %dL%.1f %d" marker-end="url(#head)"/>`+"\n", class, p.x(h.from.Ended), from, p.x(h.to.Granted)+1, to)
}

// fell reports whether the hold ended without a release, because the lock was
// lost or the process was killed.
func (t *attempt) fell() bool { return t.Held && (t.Outcome == lost || t.Outcome == killed) }

var ends = map[outcome]string{timedOut: "gave up", lost: "lost", failed: "failed", killed: "killed"}

// marks draws an attempt's notes and, unless the attempt released the lock, how
// it ended.
func (p *picture) marks(t *attempt) {
	y := middleOf(p.rows[t.Worker])
	if text := cmp.Or(t.Mark, ends[t.Outcome]); text != "" {
		p.mark(p.x(t.Ended), y, "M-5-5 5 5M5-5-5 5", text)
	}
	for _, n := range t.Notes {
		if x := p.x(n.At); n.At < t.Ended {
			fmt.Fprintf(p, `<path class="during" d="M%.1f %dv%d"/><text class="token" x="%.1f" y="%d">%s</text>`+"\n",
				x, y-barHeight/2, barHeight, x+5, y+4, escaped(n.Text))
		} else {
			p.mark(x, y, "M-6 0a6 6 0 1 1 12 0a6 6 0 1 1-12 0M-4-4 4 4", n.Text)
		}
	}
}

// mark draws a symbol with a label beside it, on the side that has room.
func (p *picture) mark(x float64, y int, symbol, text string) {
	anchor, at := "start", 10
	if x+10+float64(len(text)*letterWidth) > pictureWidth {
		anchor, at = "end", -10
	}
	fmt.Fprintf(p, `<g transform="translate(%.1f %d)"><path class="mark" d="%s"/><text class="bad" x="%d" y="4" text-anchor="%s">%s</text></g>`+"\n",
		x, y, symbol, at, anchor, escaped(text))
}

func shortened(text string) string {
	letters := []rune(clean(text))
	if len(letters) > longestLabel {
		return string(letters[:longestLabel-1]) + "…"
	}
	return string(letters)
}

func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // writes to a strings.Builder do not fail
	return b.String()
}
