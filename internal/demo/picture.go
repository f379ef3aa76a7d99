package demo

import (
	"fmt"
	"strings"
	"time"
)

// Dimensions of the picture, in pixels.
const (
	pictureWidth = 880
	rowsTop      = 118
	rowHeight    = 26
	barHeight    = 16
	waitHeight   = 6
	letterWidth  = 7 // approximate width of a letter
)

const pictureStyle = `
svg { font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif }
text { fill: #1f2328 } .title { font-size: 16px; font-weight: 600 } .dim { fill: #59636e }
.ground { fill: #ffffff; stroke: #d1d9e0 } .grid { stroke: #e3e8ed } .wait { fill: #c3ccd5 }
.shared { fill: #2f74c0 } .exclusive { fill: #bc5215 } .token { fill: #ffffff; font-size: 11px }
.mark { stroke: #cf222e; stroke-width: 2.5; fill: none } .bad { fill: #cf222e }
`

type picture struct {
	strings.Builder
	left float64 // where the time axis begins
	end  time.Duration
}

func drawPicture(r *run) string {
	p := &picture{left: float64(28 + len(r.worker(1))*letterWidth), end: 1}
	for _, t := range r.attempts {
		p.end = max(p.end, t.Ended)
	}
	bottom := rowsTop + len(r.attempts)*rowHeight
	p.head(r, bottom+14)
	p.axis(bottom)
	for i, t := range r.attempts {
		p.attempt(t, i)
	}
	for i, t := range r.attempts {
		if t.Outcome != served {
			text := map[outcome]string{lost: "lost", failed: "failed", killed: "killed"}[t.Outcome]
			if i == 0 && r.Fault == faultPause {
				text = "paused"
			}
			p.mark(p.x(t.Ended), i, "M-5-5 5 5M5-5-5 5", text)
		}
	}
	if late := r.counter.late; late != nil {
		text := map[bool]string{true: "late write refused", false: "late write stored"}[late.refused]
		p.mark(p.x(late.at), 0, "M-6 0a6 6 0 1 1 12 0a6 6 0 1 1-12 0M-4-4 4 4", text)
	}
	p.WriteString("</svg>\n")
	return p.String()
}

func (p *picture) element(start string, args ...any) { fmt.Fprintf(p, start+"\n", args...) }

func (p *picture) head(r *run, height int) {
	title := fmt.Sprintf("%d workers share one read-write lock", len(r.attempts))
	about := "Readers share the lock, a writer has it alone. First come, first served."
	if r.Fault != "" {
		title = fmt.Sprintf("A process is %s while it holds the lock", faults[r.Fault].done)
		about = "The next worker gets the lock, with a greater token. So the late write of the first is refused."
	}
	p.element(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img">`, pictureWidth, height)
	p.element("<title>dlock demo: %s</title>\n<style>%s</style>", title, pictureStyle)
	p.element(`<rect class="ground" x="0.5" y="0.5" width="%d" height="%d" rx="6"/>`, pictureWidth-1, height-1)
	p.element(`<text class="title" x="18" y="28">%s</text><text class="dim" x="18" y="47">%s</text>`, title, about)
	x := 18
	for _, entry := range []struct{ symbol, text string }{
		{`class="wait" d="M0-3h22v6h-22z"`, "waits"},
		{`class="shared" d="M0-8h22v16h-22z"`, "holds it shared"},
		{`class="exclusive" d="M0-8h22v16h-22z"`, "holds it exclusively"},
	} {
		p.element(`<g transform="translate(%d 70)"><path %s/><text x="30" y="4">%s</text></g>`, x, entry.symbol, entry.text)
		x += 42 + len(entry.text)*letterWidth
	}
}

func (p *picture) axis(bottom int) {
	const most = 8
	step := time.Nanosecond
	for factors := []time.Duration{2, 5, 10}; step < p.end/most; factors = append(factors[1:], factors[0]*10) {
		step = factors[0]
	}
	for d := time.Duration(0); d <= p.end; d += step {
		p.element(`<path class="grid" d="M%.1f %dV%d"/><text class="dim" x="%.1[1]f" y="%[4]d" text-anchor="middle">%[5]v</text>`,
			p.x(d), rowsTop-8, bottom, rowsTop-14, d)
	}
}

// x returns the horizontal position of a time.
func (p *picture) x(d time.Duration) float64 {
	return p.left + float64(d)/float64(p.end)*(pictureWidth-40-p.left)
}

func middleOf(row int) int { return rowsTop + row*rowHeight + rowHeight/2 }

// attempt draws an attempt's wait and hold. Even a short hold must be visible.
func (p *picture) attempt(t *attempt, row int) {
	y := middleOf(row)
	p.element(`<text x="%.1f" y="%d" text-anchor="end">%s</text>`, p.left-10, y+4, t.Worker)
	waited := t.Ended
	if t.Held {
		waited = t.Granted
	}
	p.element(`<rect class="wait" x="%.1f" y="%d" width="%.1f" height="%d"/>`, p.x(t.Asked), y-waitHeight/2, max(0, p.x(waited)-p.x(t.Asked)), waitHeight)
	if !t.Held {
		return
	}
	x, width := p.x(t.Granted), max(2, p.x(t.Ended)-p.x(t.Granted))
	p.element(`<rect class="%v" x="%.1f" y="%d" width="%.1f" height="%d" rx="2"/>`, t.Mode, x, y-barHeight/2, width, barHeight)
	if text := fmt.Sprintf("token %d", t.Token); width >= float64(len(text)*letterWidth) {
		p.element(`<text class="token" x="%.1f" y="%d">%s</text>`, x+5, y+4, text)
	}
}

// mark draws a symbol with a label beside it, on the side that has room.
func (p *picture) mark(x float64, row int, symbol, text string) {
	anchor, at := "start", 10
	if x+10+float64(len(text)*letterWidth) > pictureWidth {
		anchor, at = "end", -10
	}
	p.element(`<g transform="translate(%.1f %d)"><path class="mark" d="%s"/><text class="bad" x="%d" y="4" text-anchor="%s">%s</text></g>`,
		x, middleOf(row), symbol, at, anchor, text)
}
