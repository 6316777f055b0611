import contextlib, io, sys, time, traceback, warnings, random, logging
import numpy as np, torch
import jax
jax.config.update("jax_num_cpu_devices", 8)
sys.path.insert(0, __file__.rpartition("/")[0])
import systolic as L
import steps as S
from torch.utils.data import DataLoader, TensorDataset
warnings.simplefilter("ignore")
logging.getLogger("steps").setLevel(logging.INFO)

class Rec(L.Callback):
    def __init__(self): self.losses=[]; self.metrics=[]
    def on_train_batch_end(self, trainer, m, out, batch, i):
        self.losses.append(float(out["loss"]) if out is not None and "loss" in (out or {}) else None)
        self.metrics.append({k: float(v) for k,v in trainer.callback_metrics.items()})

def go(name, compile, devices=1, epochs=2):
    torch.manual_seed(0); random.seed(0); np.random.seed(0)
    m = S.PATTERNS[name]()
    g = torch.Generator().manual_seed(1)
    n = S.ROWS*S.BATCHES
    data = TensorDataset(torch.randn(n, S.FEATURES, generator=g), torch.randint(0, S.CLASSES, (n,), generator=g))
    out = io.StringIO(); handler = logging.StreamHandler(out); logging.getLogger("steps").addHandler(handler)
    rec = Rec()
    t0=time.time()
    kw = {"devices": devices} if compile else {}
    t = L.Trainer(accelerator="cpu", max_epochs=epochs, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, compile=compile, callbacks=[rec], **kw)
    random.seed(0); np.random.seed(0)
    with contextlib.redirect_stdout(out):
        t.fit(m, DataLoader(data, batch_size=S.ROWS//devices if compile else S.ROWS))
    logging.getLogger("steps").removeHandler(handler)
    state = {k: v.detach().clone() for k, v in m.state_dict().items()}
    kept = {k: getattr(m,k) for k in ("losses","recent","total","count","counts","predictions","best") if hasattr(m,k)}
    return dict(losses=rec.losses, metrics=rec.metrics, out=out.getvalue(), state=state, kept=repr([(k, [float(x) for x in v] if isinstance(v,(list,)) or type(v).__name__=="deque" else v) for k,v in kept.items()]), seconds=time.time()-t0, compiles=len(getattr(t,"compiles",[])))

def same(a, b):
    if a["losses"] != b["losses"] and not np.allclose([x or 0 for x in a["losses"]], [x or 0 for x in b["losses"]], rtol=1e-4, atol=1e-5): return f"losses {a['losses'][:3]} {b['losses'][:3]}"
    for k in a["state"]:
        if not torch.allclose(a["state"][k].to(torch.cfloat), b["state"][k].to(torch.cfloat), rtol=1e-3, atol=1e-5): return f"state {k}"
    for i,(x,y) in enumerate(zip(a["metrics"], b["metrics"])):
        if x.keys()!=y.keys() or not np.allclose(list(x.values()), [y[k] for k in x], rtol=1e-3, atol=1e-4): return f"metrics {i} {x} {y}"
    strip = lambda t: __import__("re").sub(r", grad_fn=<\w+>", "", _strip(t))
    _strip = lambda t: __import__("re").sub(r"\d+\.\d+", lambda m: "%.2f" % float(m[0]), t)
    if strip(a["out"]).split() != strip(b["out"]).split(): return f"output {a['out'][:80]!r} {b['out'][:80]!r}"
    if strip(a["kept"]) != strip(b["kept"]): return f"kept {a['kept'][:100]} {b['kept'][:100]}"
    return ""

names = sys.argv[1:] or list(S.PATTERNS)
counts = {}
for name in names:
    try: want = go(name, False)
    except Exception as e:
        print(f"ORACLE    {name:26} {type(e).__name__}: {str(e)[:150]}", flush=True); continue
    try: got = go(name, True)
    except Exception as e:
        kind = "REFUSED" if type(e).__module__.startswith("systolic") else "CRASH"
        counts[kind]=counts.get(kind,0)+1
        print(f"{kind:9} {name:26} {type(e).__name__}: {str(e)[:300]!r}", flush=True)
        if len(names)==1: traceback.print_exc()
        continue
    diff = same(want, got)
    kind = "WRONG" if diff else "equal"
    counts[kind]=counts.get(kind,0)+1
    print(f"{kind:9} {name:26} {got['compiles']} compiles {got['seconds']:.1f}s {diff}", flush=True)
print(counts)
