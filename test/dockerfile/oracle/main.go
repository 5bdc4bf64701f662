// The oracle: what the real BuildKit frontend makes of a Dockerfile, without a daemon.
//
// Reads a JSON array of {"name", "dockerfile", "args", "target"} and prints an object of name to
// {"config": …} or {"error": "…"}. `../record.py` runs it; the tests only read what it recorded.
package main

import (
	"context"
	"encoding/json"
	"os"

	"github.com/moby/buildkit/client/llb"
	"github.com/moby/buildkit/frontend/dockerfile/dockerfile2llb"
	"github.com/moby/buildkit/frontend/dockerui"
	"github.com/moby/buildkit/solver/pb"
	ocispecs "github.com/opencontainers/image-spec/specs-go/v1"
)

type input struct {
	Name       string
	Dockerfile string
	Args       map[string]string
	Target     string
}

type answer struct {
	Config any    `json:"config,omitempty"`
	Author string `json:"author,omitempty"`
	Error  string `json:"error,omitempty"`
}

func convert(in input) answer {
	caps := pb.Caps.CapSet(pb.Caps.All())
	state := llb.Scratch()
	platform := ocispecs.Platform{OS: "linux", Architecture: "amd64"}
	result, err := dockerfile2llb.Dockerfile2LLB(context.Background(), []byte(in.Dockerfile), dockerfile2llb.ConvertOpt{
		MainContext: &state,
		LLBCaps:     &caps,
		Config: dockerui.Config{
			BuildArgs:       in.Args,
			Target:          in.Target,
			BuildPlatforms:  []ocispecs.Platform{platform},
			TargetPlatforms: []ocispecs.Platform{platform},
		},
		TargetPlatform: &platform,
	})
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Config: result.Image.Config, Author: result.Image.Author}
}

func main() {
	var inputs []input
	if err := json.NewDecoder(os.Stdin).Decode(&inputs); err != nil {
		panic(err)
	}
	answers := map[string]answer{}
	for _, in := range inputs {
		answers[in.Name] = convert(in)
	}
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	if err := out.Encode(answers); err != nil {
		panic(err)
	}
}
