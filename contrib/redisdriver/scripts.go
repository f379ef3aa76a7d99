package redisdriver

import (
	"embed"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var files embed.FS

// Each script is the text of common.lua followed by the named file.
var (
	openScript       = script("open")
	beatScript       = script("beat")
	createScript     = script("create")
	cancelScript     = script("cancel")
	deleteScript     = script("delete")
	replaceScript    = script("replace")
	lookScript       = script("look")
	readScript       = script("read")
	walkScript       = script("walk")
	removeScript     = script("remove")
	setValueScript   = script("setvalue")
	valueScript      = script("value")
	watchScript      = script("watch")
	watchQueueScript = script("watchqueue")
	closeScript      = script("close")
)

func script(name string) *redis.Script { return redis.NewScript(text("common") + text(name)) }

func text(name string) string {
	b, err := files.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // embedded, so always present
	}
	return string(b)
}
