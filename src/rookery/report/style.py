"""The look of the page. Colours after Okabe and Ito, moved to a contrast of 3 or more with the paper, light or dark."""

STYLE = """
:root{color-scheme:light dark;--paper:#fff;--panel:#f6f7f9;--ink:#1b2230;--soft:#596273;--rule:#dde1e7;--edge:#b9c0cb;
--best:#e3f1ea;--worst:#fbe9df;--c0:#0072b2;--c1:#d55e00;--c2:#008f68;--c3:#b8598c;--c4:#a87400;--c5:#3793c4;--c6:#4d5563}
@media (prefers-color-scheme:dark){:root{--paper:#14181f;--panel:#1c222b;--ink:#e6e9ee;--soft:#a0a9b8;--rule:#343c48;--edge:#4a5463;
--best:#17382c;--worst:#45271a;--c0:#4ea6e0;--c1:#f0803c;--c2:#2cc197;--c3:#dd93bc;--c4:#e3ae3d;--c5:#94d3f7;--c6:#b4bcc9}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif;
-webkit-text-size-adjust:100%;overflow-wrap:anywhere}
main{max-width:76rem;margin:0 auto;padding:2.5rem 1rem 4rem}
h1{font-size:clamp(1.6rem,5vw,2.2rem);line-height:1.2;font-weight:650;letter-spacing:-.015em;margin:0 0 .6rem}
h2{font-size:1.3rem;font-weight:650;letter-spacing:-.01em;margin:3.2rem 0 .5rem}
h3{font-size:1rem;font-weight:650;margin:1.6rem 0 .3rem}
p{margin:.4rem 0 .9rem;max-width:52rem}.intro{font-size:1.08rem}.note,figcaption{color:var(--soft);font-size:.875rem}
.flags{border-left:3px solid var(--c1);background:var(--worst);padding:.5rem .9rem;border-radius:0 6px 6px 0;list-style:none;
font-size:.92rem;margin:.6rem 0}
.scroll{overflow-x:auto;width:fit-content;max-width:100%;border:1px solid var(--rule);border-radius:8px;margin:.6rem 0;
background:linear-gradient(to left,var(--paper) 35%,transparent) right/2.6rem 100% no-repeat local,
linear-gradient(to left,var(--edge),transparent) right/1.3rem 100% no-repeat scroll}
.scroll::after{content:"scroll sideways for more →";display:block;font-size:0;color:var(--soft);animation:more linear;
animation-timeline:scroll(nearest inline)}@keyframes more{from,to{font-size:.8rem;padding:.15rem .6rem}}
.scroll:focus-visible,input:focus-visible+span,summary:focus-visible{outline:2px solid var(--c0);outline-offset:2px}
table{border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums;overflow-wrap:normal}
th,td{padding:.42rem .55rem;text-align:right;border-top:1px solid var(--rule);vertical-align:top;line-height:1.35}
thead th{border-top:0;color:var(--soft);font-weight:600;vertical-align:bottom;font-size:.8rem}
th:first-child,.text{text-align:left}td.text{min-width:7.5rem}td.text:last-child{min-width:13rem}
th:first-child{position:sticky;left:0;background:var(--paper);padding-left:.8rem;min-width:9.5rem;max-width:20rem}
tbody th{font-weight:600;overflow-wrap:anywhere}.method{display:flex}th small,td small{display:block;font-weight:400;color:var(--soft)}
td{white-space:nowrap}.text{white-space:normal}.best,.worst{font-weight:700}.best{background:var(--best)}.worst{background:var(--worst)}
thead .method{display:inline-flex}.summary th:first-child{min-width:16rem;max-width:34rem}.term summary{font-size:inherit;padding:0}
@media (min-width:46.01rem){.term summary{list-style:none;cursor:auto}.term::details-content{content-visibility:visible;height:auto}}
.forest{position:relative;width:99%;min-width:5.5rem}.axis,.forest>svg{position:absolute;inset:0 .8rem;width:calc(100% - 1.6rem);
height:100%}.axis i{position:absolute;bottom:.42rem;font-style:normal;transform:translateX(-50%)}.bar{stroke-width:1.6}
.said{font-size:clamp(1.15rem,3.4vw,1.5rem);line-height:1.35;font-weight:600;max-width:62rem}.verdict .scroll,.verdict table{width:100%}
.verdict th:first-child{min-width:13rem}.verdict td{vertical-align:middle}
.kept{background:var(--ink);color:var(--paper);border-radius:4px;padding:0 .35rem;font-size:.75rem}
.swatch{width:22px;height:8px;margin:.42em .45em 0 0;flex:none}
path{fill:none;vector-effect:non-scaling-stroke}.line{stroke-width:2;stroke-linejoin:round;stroke-linecap:round}.dot{stroke-width:7}
.band{stroke:none;opacity:.16}.d1:not(.dot){stroke-dasharray:6 4}.d2:not(.dot){stroke-dasharray:1.5 4}
.grid{stroke:var(--rule);stroke-width:1}.chance{stroke:var(--soft);stroke-width:1.2;stroke-dasharray:4 4}
figure{margin:0}.chart{padding-top:.4rem}
.plot{position:relative;height:21rem;margin:.9rem 12.5rem .3rem 3.6rem;border-bottom:1px solid var(--soft)}
.plot>svg{position:absolute;inset:0;width:100%;height:100%;overflow:visible}
.ty,.tx,.end{position:absolute;font-size:.78rem;line-height:1;color:var(--soft);white-space:nowrap;font-variant-numeric:tabular-nums}
.ty{right:100%;margin-right:.5rem;transform:translateY(-50%)}.tx{top:100%;margin-top:.5rem;transform:translateX(-50%)}
.end{left:100%;margin-left:.7rem;max-width:11.8rem;overflow:hidden;text-overflow:ellipsis;transform:translateY(-50%);color:var(--ink);
padding:1px 0}.end .swatch,.legend .swatch{margin-top:0;vertical-align:.12em}
.xlabel,.ylabel{font-size:.82rem;font-weight:600}.xlabel{margin:1.6rem 12.5rem 0 3.6rem;text-align:center}
.legend{display:none;list-style:none;margin:.7rem 0 .2rem;padding:0;font-size:.85rem;gap:.1rem 1.1rem;flex-wrap:wrap}
.legend b{font-weight:600;font-variant-numeric:tabular-nums}.chart figcaption{margin-top:.3rem}
.square .plot,.square .xlabel{margin-right:1rem}.square .legend{display:block;margin-left:3.6rem}.square figcaption{margin-left:3.6rem}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr));gap:1.5rem}.pair h3{margin-top:.4rem}
fieldset{border:0;padding:0;margin:.5rem 0;display:flex;flex-wrap:wrap;gap:.3rem;align-items:center}fieldset[hidden]{display:none}
legend{float:left;font-size:.82rem;color:var(--soft);width:4.2rem;padding:0}
fieldset label{cursor:pointer;display:inline-flex;position:relative}fieldset input{position:absolute;opacity:0;width:1px;height:1px}
fieldset span{border:1px solid var(--rule);border-radius:999px;padding:.16rem .75rem;font-size:.85rem}
fieldset span:hover{border-color:var(--soft)}fieldset input:checked+span{background:var(--ink);color:var(--paper);border-color:var(--ink)}
@supports selector(:has(*)){.pane{display:none}}
.rounds{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,20rem),1fr));gap:1.2rem;margin-top:1rem;align-items:start}
.round{border:1px solid var(--rule);border-radius:8px;padding:.8rem .6rem;break-inside:avoid}.round figcaption b{color:var(--ink)}
.round figcaption{padding:0 .3rem .4rem}.round svg{display:block;overflow:visible;width:100%;max-width:26rem;margin:auto}
.round text{font-size:11px;fill:var(--soft);text-anchor:middle;font-variant-numeric:tabular-nums}
.round .name{font:12px ui-monospace,Menlo,Consolas,monospace;fill:var(--ink)}.round .who{font-size:12px;font-weight:600;fill:var(--ink)}
.round .times{font-size:13px;font-weight:700;fill:var(--ink);text-anchor:start}
.box{fill:var(--panel);stroke:var(--soft)}.life{stroke:var(--rule);stroke-width:1.5}
.again{fill:none;stroke:var(--soft);stroke-dasharray:3 3}
.down .shaft{stroke:var(--c0)}.down .head{fill:var(--c0)}.up .shaft{stroke:var(--c1)}.up .head{fill:var(--c1)}
pre{background:var(--panel);border-radius:8px;padding:.7rem .9rem;margin:.4rem 0;white-space:pre-wrap;
font:.82rem/1.5 ui-monospace,Menlo,Consolas,monospace}summary{cursor:pointer;font-size:.9rem;padding:.2rem 0}
@media (max-width:46rem){main{padding-top:1.5rem}th,td{padding:.4rem .42rem}
.plot{height:15rem}.plot,.xlabel,.square .plot,.square .xlabel{margin-right:.8rem;
margin-left:2.9rem}.end{display:none}.legend{display:flex}.square .legend,.square figcaption{margin-left:0}legend{width:100%}
th:first-child{min-width:8.4rem;max-width:9rem;padding-left:.6rem}
.summary th:first-child{min-width:8.4rem;max-width:9rem}.verdict th:first-child{min-width:8.4rem}.verdict .forest{min-width:9rem}
tbody .swatch{width:14px}}
@page{size:landscape;margin:12mm}
@media print{body{font-size:11pt}main{padding:0;max-width:none}.scroll{overflow:visible;border:0;background:none}fieldset{display:none}
h2,h3{break-after:avoid}figure,tr{break-inside:avoid}th:first-child{position:static;min-width:8rem}
table{font-size:7.5pt}th,td{padding:.2rem}td.text{min-width:0}details::details-content{content-visibility:visible;height:auto}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
""" + "".join(f".line.c{k}{{stroke:var(--c{k})}}.band.c{k}{{fill:var(--c{k})}}" for k in range(7))

# of the section on the model in use, which brings it along: a page without one is none the longer
IN_USE = """
.told{padding:.6rem 1rem;margin-bottom:1rem}.told ul{list-style:disc;margin:.2rem 0 0;padding-left:1.1rem}.told li{margin:.15rem 0}
.told summary{padding:.3rem 0 0}.facts{border-color:var(--c0);background:var(--panel)}
.fit th:first-child,.matrix th{overflow-wrap:anywhere}.measures{grid-template-columns:minmax(0,3fr) minmax(0,2fr)}
.measures .scroll,.measures table,.sites .scroll,.sites table{width:100%}.measures th:first-child{max-width:none}
.matrix th:first-child{min-width:5.5rem}.matrix td{font-size:1rem}.matrix small{font-size:.8rem}.matrix thead th{min-width:3.2rem}
.cut>svg{overflow:hidden}
.sites .scroll{max-width:58rem}.sites th:first-child{min-width:13rem}.sites td{vertical-align:middle}
.sites td,.sites tbody th{padding-top:.28rem;padding-bottom:.28rem}
.square+details{margin-left:3.6rem}details.fit th:first-child{min-width:0}
@media (max-width:60rem){.measures{grid-template-columns:minmax(0,1fr)}}
@media (max-width:46rem){.sites th:first-child,.groups th:first-child{min-width:6.9rem}.square+details{margin-left:0}}
"""
