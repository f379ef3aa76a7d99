package main

import (
	"fmt"
	"html"
	"math"
	"strings"

	"github.com/dlock-go/dlock/bench/internal/stats"
)

// chart is a bar chart with one or several panels that have the same scale.
type chart struct {
	title, axis string
	log         bool // the scale is logarithmic
	panels      []panel
}

type panel struct {
	title string
	bars  []bar
}

type bar struct {
	label string
	class string // the CSS class, which is the kind of the competitor: see kind
	value stats.Spread
}

// The sizes in a chart, in pixels.
const (
	chartWidth = 760
	labelWidth = 250
	valueWidth = 70
	barHeight  = 16
	barStep    = 24
	topSpace   = 56
	panelSpace = 30
)

// style has colors for a light and for a dark page. It uses fonts of the system only.
const style = `<style>
text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328; }
.title { font-size: 15px; font-weight: 600; }
.unit, .number { fill: #59636e; }
.panel { font-weight: 600; }
.ours { fill: #0969da; } .variant { fill: #80b4ef; } .peer { fill: #8c959f; } .reference { fill: #d1d9e0; }
.whisker { stroke: #1f2328; stroke-width: 1; }
.axis { stroke: #d1d9e0; stroke-width: 1; }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc; }
.unit, .number { fill: #9198a1; }
.ours { fill: #4493f8; } .variant { fill: #2a5a96; } .peer { fill: #767e88; } .reference { fill: #3d444d; }
.whisker { stroke: #f0f6fc; }
.axis { stroke: #3d444d; }
}
</style>
`

// scale returns a function that returns the length of the bar of a value, in pixels.
func (c chart) scale() func(v float64) float64 {
	least, most := math.Inf(1), 0.0
	for _, p := range c.panels {
		for _, b := range p.bars {
			least, most = math.Min(least, b.value.Min), math.Max(most, b.value.Max)
		}
	}
	const width = chartWidth - labelWidth - valueWidth
	switch {
	case most <= 0:
		return func(float64) float64 { return 0 }
	case c.log && least > 0:
		from := math.Floor(math.Log10(least)) - 0.2
		return func(v float64) float64 { return width * (math.Log10(v) - from) / (math.Log10(most) - from) }
	}
	return func(v float64) float64 { return width * v / most }
}

func (c chart) svg() string {
	height := topSpace
	for _, p := range c.panels {
		height += len(p.bars) * barStep
		if p.title != "" {
			height += panelSpace
		}
	}
	axis := c.axis
	if c.log {
		axis += "; logarithmic scale"
	}
	scale := c.scale()
	var s strings.Builder
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`+"\n",
		chartWidth, height, chartWidth, height)
	fmt.Fprintf(&s, "<title>%s</title>\n%s", html.EscapeString(c.title), style)
	text(&s, 0, 18, "title", "start", c.title)
	text(&s, 0, 38, "unit", "start", axis)
	y := topSpace
	for _, p := range c.panels {
		if p.title != "" {
			text(&s, 0, y+14, "panel", "start", p.title)
			y += panelSpace
		}
		fmt.Fprintf(&s, `<line class="axis" x1="%d" y1="%d" x2="%d" y2="%d"/>`+"\n", labelWidth, y-4, labelWidth, y+len(p.bars)*barStep-4)
		for _, b := range p.bars {
			b.draw(&s, y, scale)
			y += barStep
		}
	}
	s.WriteString("</svg>\n")
	return s.String()
}

// draw draws the median as a bar, and a line from the smallest to the largest value.
func (b bar) draw(s *strings.Builder, y int, scale func(float64) float64) {
	x := func(v float64) float64 { return labelWidth + scale(v) }
	text(s, labelWidth-8, y+13, "label", "end", b.label)
	fmt.Fprintf(s, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d" rx="2"/>`+"\n", b.class, labelWidth, y, scale(b.value.Median), barHeight)
	middle := float64(y) + barHeight/2
	fmt.Fprintf(s, `<line class="whisker" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`+"\n", x(b.value.Min), middle, x(b.value.Max), middle)
	text(s, int(x(b.value.Max))+8, y+13, "number", "start", number(b.value.Median))
}

func text(s *strings.Builder, x, y int, class, anchor, words string) {
	fmt.Fprintf(s, `<text class="%s" x="%d" y="%d" text-anchor="%s">%s</text>`+"\n", class, x, y, anchor, html.EscapeString(words))
}
