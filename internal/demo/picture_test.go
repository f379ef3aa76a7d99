package demo

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
)

var update = flag.Bool("update", false, "write the pictures that the pages show")

// TestThePicturesOfTheDocumentation checks that the demo, run in virtual time,
// draws the pictures in docs/use.
func TestThePicturesOfTheDocumentation(t *testing.T) {
	for shown, args := range map[string][]string{
		"../../docs/use/demo.svg":       {"-seed", "5"},
		"../../docs/use/demo-pause.svg": {"-fault", "pause"},
	} {
		name := filepath.Join(t.TempDir(), "demo.svg")
		synctest.Test(t, func(t *testing.T) {
			r := play(t, t.Context(), nil, append(args, "-svg", name)...)
			require.Equal(t, statusOK, r.status, r.stderr)
			require.True(t, strings.HasSuffix(r.stdout, "\nPicture: "+name+"\n"), r.stdout)
		})
		drawn, err := os.ReadFile(name)
		require.NoError(t, err)
		if *update {
			require.NoError(t, os.WriteFile(shown, drawn, 0o644))
		}
		want, err := os.ReadFile(shown)
		require.NoError(t, err)
		assert.Equal(t, string(want), string(drawn), "go test -run TestThePictures ./internal/demo -update writes it anew")
	}
}

// shapes counts the elements of a picture by name and class, and collects its
// text. It fails if the picture is not well-formed.
func shapes(t *testing.T, picture string) (counts map[string]int, texts string) {
	t.Helper()
	counts = make(map[string]int)
	all := xml.NewDecoder(strings.NewReader(picture))
	for {
		token, err := all.Token()
		if errors.Is(err, io.EOF) {
			return counts, texts
		}
		require.NoError(t, err, "%s", picture)
		switch x := token.(type) {
		case xml.StartElement:
			class := ""
			for _, a := range x.Attr {
				if a.Name.Local == "class" {
					class = " " + a.Value
				}
			}
			counts[x.Name.Local+class]++
		case xml.CharData:
			texts += string(x)
		}
	}
}

func TestThePictureHasABarForEachHoldAndAnArrowForEachHandOver(t *testing.T) {
	attempts := append(right(),
		&attempt{Worker: "w9", Mode: dlock.Exclusive, Asked: ms(9), Ended: ms(300), Outcome: timedOut},
		&attempt{Worker: "w1", Mode: dlock.Exclusive, Asked: ms(200), Granted: ms(450), Ended: ms(450), Held: true, Outcome: lost, Notes: []note{{ms(500), "late write refused"}}},
		&attempt{Worker: "w2", Mode: dlock.Shared, Asked: ms(460), Granted: ms(480), Ended: ms(490), Held: true})
	picture := drawPicture(&settings{Lock: "stock", Driver: "mem"}, attempts)
	counts, texts := shapes(t, picture)
	assert.Equal(t, 5, counts["rect shared"])
	assert.Equal(t, 3, counts["rect exclusive"])
	legend := 1
	assert.Equal(t, 5+legend, counts["path arrow"], "w2-w3, w3-w4, w4-w5, w4-w6, w5-w1")
	assert.Equal(t, 1+legend, counts["path arrow after"], "w1 lost it, and then w2 got it")
	assert.Equal(t, 3+legend, counts["path mark"], "gave up, lost, late write")
	assert.Equal(t, 7, strings.Count(picture, `text-anchor="end">w`), "one row per worker")
	assert.Contains(t, texts, "late write refused")
}

func TestAHandOverComesFromTheLastHoldThatWasInTheWay(t *testing.T) {
	var found []string
	late := hold(dlock.Shared, 7, 9, 460, 470) // the earlier readers did not delay this one
	for _, h := range handOvers(append(right(), late)) {
		found = append(found, h.from.Worker+" "+h.to.Worker)
	}
	assert.Equal(t, []string{"w2 w3", "w3 w4", "w4 w6", "w4 w5", "w4 w7"}, found)

	first, later := hold(dlock.Exclusive, 1, 0, 0, 10), hold(dlock.Exclusive, 2, 20, 900, 990)
	assert.Empty(t, handOvers([]*attempt{later, first}), "the lock was free when w2 asked")
	first.Outcome = killed
	assert.Equal(t, []handOver{{first, later}}, handOvers([]*attempt{later, first}), "its node was still there when w2 asked")
}

func TestNamesInThePictureAreEscaped(t *testing.T) {
	bad := hold(dlock.Exclusive, 1, 0, 1, 100)
	bad.Worker = `</text><script>alert("x")</script>&amp;` + "\x1b[2J\xff\x00"
	bad.Outcome, bad.Notes = lost, []note{{ms(50), "<b>"}, {ms(200), "]]><i>"}}
	long := hold(dlock.Shared, 2, 0, 100, 200)
	long.Worker = strings.Repeat("ä", 500)
	picture := drawPicture(&settings{Lock: `"><svg onload=x>'`, Driver: "<mem>"}, []*attempt{bad, long})
	counts, texts := shapes(t, picture)
	assert.Zero(t, counts["script"]+counts["b"]+counts["i"])
	assert.Equal(t, 1, counts["svg"])
	assert.Contains(t, texts, `</text><script>alert("x")</script>`, "the first 39 letters")
	assert.NotContains(t, picture, "\x1b")
	assert.Contains(t, texts, strings.Repeat("ä", longestLabel-1)+"…\n")
}

func TestALongRunMakesASmallPicture(t *testing.T) {
	var attempts []*attempt
	for i := range maxDrawn + 7 {
		attempts = append(attempts, hold(dlock.Shared, int64(i+1), 0, i, i+1))
		attempts[i].Worker = "w1"
	}
	counts, texts := shapes(t, drawPicture(&settings{}, attempts))
	assert.Equal(t, maxDrawn, counts["rect shared"])
	assert.Contains(t, texts, "The first 2000 attempts of 2007.")
}

func TestAFileThatCannotBeWrittenIsRefusedBeforeTheRun(t *testing.T) {
	dir := t.TempDir()
	for name, says := range map[string]string{
		dir:                               "is not a regular file",
		filepath.Join(dir, "no", "x.svg"): "no such file or directory",
	} {
		assert.Error(t, writePicture(name, ""))
		r := play(t, t.Context(), nil, "-workers", "1", "-svg", name)
		assert.Equal(t, statusUsage, r.status)
		assert.Contains(t, r.stderr, says)
		assert.Empty(t, r.stdout)
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestAPictureReplacesTheFileBehindALink(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file.svg"), filepath.Join(dir, "link.svg")
	require.NoError(t, os.WriteFile(file, []byte(strings.Repeat("old", 1000)), 0o600))
	if err := os.Symlink(file, link); err != nil {
		t.Skipf("this system has no symbolic links: %v", err)
	}
	require.NoError(t, checkPicture(link))
	require.NoError(t, writePicture(link, "new"))
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "new", string(content))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, left, 2)
	assert.ErrorIs(t, writePicture(filepath.Join(dir, "no", "x"), ""), fs.ErrNotExist)
}
