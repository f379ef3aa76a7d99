package zktest

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Option configures a server.
type Option func(*settings)

type settings struct {
	config   map[string]string
	jvm      []string
	tls      bool
	slowDisk bool
	clock    bool
}

func newSettings(opts []Option) *settings {
	s := &settings{jvm: []string{containerCheck(24 * time.Hour)}, config: map[string]string{
		"clientPortAddress":      "127.0.0.1",
		"tickTime":               "500",
		"minSessionTimeout":      "1000",
		"maxSessionTimeout":      "600000",
		"maxClientCnxns":         "0",
		"admin.enableServer":     "false",
		"4lw.commands.whitelist": "*",
	}}
	for _, opt := range opts {
		opt(s)
	}
	return s
}

// WithConfig adds or replaces lines of the configuration file. It cannot change
// the client port and the data directory.
func WithConfig(lines map[string]string) Option {
	return func(s *settings) { maps.Copy(s.config, lines) }
}

// WithJVM adds flags for the Java virtual machine, such as
// -Dzookeeper.extendedTypesEnabled=true.
func WithJVM(flags ...string) Option {
	return func(s *settings) { s.jvm = append(s.jvm, flags...) }
}

// WithContainerCheck makes the server remove empty containers at the given
// interval. The default is once a day, that is, never during a test: queues are
// containers, and recreating one takes requests that tests don't expect.
func WithContainerCheck(every time.Duration) Option { return WithJVM(containerCheck(every)) }

func containerCheck(every time.Duration) string {
	return fmt.Sprintf("-Dznode.container.checkIntervalMs=%d", every.Milliseconds())
}

func (s *settings) file() string {
	var text []byte
	for _, key := range slices.Sorted(maps.Keys(s.config)) {
		text = append(text, key+"="+s.config[key]+"\n"...)
	}
	return string(text)
}
