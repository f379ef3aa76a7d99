package secret

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestALoginIsLeftOutHoweverItIsRepeated(t *testing.T) {
	for _, c := range []struct{ arg, text, want string }{
		{"zk://alice:geheim@h/x", `unexpected argument "zk://alice:geheim@h/x"`, `unexpected argument "zk://alice:...@h/x"`},
		{"alice:geheim@h", `unknown command "alice:geheim@h"`, `unknown command "alice:...@h"`},
		{"-dsn=zk://alice:ge\"heim@h", fmt.Sprintf("%q", "zk://alice:ge\"heim@h"), `"zk://alice:...@h"`},
		{"zk://alice:ge@heim@h", "zk://alice:ge@heim@h", "zk://alice:...@h"},
		{"-dsn:zk://alice:ge=heim@h", "flag provided but not defined: -dsn:zk://alice:ge", "flag provided but not defined: -dsn:zk://alice:..."},
		{"zk://h1,h2/x", `"zk://h1,h2/x"`, `"zk://h1,h2/x"`},
		{"mail@example", `"mail@example"`, `"mail@example"`},
		{"zk://alice:@h", `"zk://alice:@h"`, `"zk://alice:@h"`},
		{"host=h password=geheim user=x", `invalid value "host=h password=geheim user=x" for flag`, `invalid value "host=h password=... user=x" for flag`},
		{"host=h password='ge heim'", `"host=h password='ge heim'"`, `"host=h password=..."`},
		{"-dsn:redis://h?password=geheim&db=1", "-dsn:redis://h?password=geheim&db=1", "-dsn:redis://h?password=...&db=1"},
		{"alice:geheim@tcp(h:1)/db", `"alice:geheim@tcp(h:1)/db"`, `"alice:...@tcp(h:1)/db"`},
		{"", "text", "text"},
	} {
		assert.Equal(t, c.want, Hide(c.text, []string{"other", c.arg}))
	}
}
